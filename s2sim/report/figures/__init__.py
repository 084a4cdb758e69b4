"""Figures of result rows, one a file, as matplotlib figures; they need the extra ``plot``."""
