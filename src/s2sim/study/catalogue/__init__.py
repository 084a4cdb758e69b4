"""What there is, with what is measured of it."""
