"""Collectives and flows by themselves."""
