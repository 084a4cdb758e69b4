"""The JSON schemas of results, made of their dataclasses."""
