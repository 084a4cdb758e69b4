"""Laws fitted to a trace, layer tables, and gradients and scripts scaled by them."""
