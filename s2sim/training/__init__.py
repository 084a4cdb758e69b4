"""Training with reducers in the loop, against simulated time."""
