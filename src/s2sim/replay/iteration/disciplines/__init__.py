"""When gradients leave, in which company, and what goes first: one discipline a file."""
