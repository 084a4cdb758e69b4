"""Real processes: how they are started, and the same reducers between them."""
