"""Lets ``python -m s2sim`` do what ``s2sim`` does."""

from __future__ import annotations

import sys

from s2sim.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
