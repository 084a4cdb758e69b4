"""Recordings in simulated time: a communication phase, a training iteration, faults."""
