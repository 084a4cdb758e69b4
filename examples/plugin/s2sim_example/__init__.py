"""One plug-in of each kind for s2sim, each in a file of its own."""
