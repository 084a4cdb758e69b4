"""Training a recorder's model with a reducer between the ranks' mini-batches and the optimizer."""
