"""A network made of the kernel's own facilities, with rates that one sets, and what is measured in it."""
