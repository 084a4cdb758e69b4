"""The command line: one thin file a command."""

# Exit code, as shells give it to what Ctrl-C ends.
INTERRUPTED = 130
