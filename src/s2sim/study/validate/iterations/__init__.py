"""How far predictions are from measured training iterations."""
