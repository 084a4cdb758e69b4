"""One paper a file, with the claims that it makes."""
