"""What can go wrong, and what it does to a cluster before and while it runs."""
