"""What systems share that send a matrix as the product of two narrow ones."""
