"""Lets ``python -m s2sim`` do what ``s2sim`` does."""

import sys

from s2sim.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
