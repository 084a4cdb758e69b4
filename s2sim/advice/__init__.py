"""Advice: the question of a run turned round, and the runs that the answer rests on."""
