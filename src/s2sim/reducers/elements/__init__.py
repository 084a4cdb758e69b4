"""What systems share that take the elements of all layers, zeros included."""
