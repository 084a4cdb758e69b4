"""How long schedules take, what bounds them, and which algorithm is fastest."""
