"""How far predictions are from measured collectives."""
