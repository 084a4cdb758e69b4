"""The command line: one thin file a command."""

# Exit code, as shells give it to what Ctrl-C ends.
INTERRUPTED = 130

# What --show adds to a run.
VIEWS = DETAILS, LAYERS, COLLECTIVES, LOWERING, PARETO = "details", "layers", "collectives", "lowering", "pareto"
