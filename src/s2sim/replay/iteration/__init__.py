"""Training iterations in simulated time: compute, codecs and network at once."""
