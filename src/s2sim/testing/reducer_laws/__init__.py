"""The laws that every gradient reducer keeps, a file each kind."""
