"""Everything that a spec names, looked up once."""
