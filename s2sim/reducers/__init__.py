"""Gradient reducers: one published system a file, each the program that every rank runs."""
