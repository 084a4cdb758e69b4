"""The papers, one a file."""
