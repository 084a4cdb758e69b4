"""How long a model's layers compute on a GPU, and when each gradient is there."""
