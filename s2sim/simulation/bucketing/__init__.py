"""Which gradients leave together, and when: one policy a file."""
