"""How sure predicted times are: intervals of measured errors, and the fit of constants."""
