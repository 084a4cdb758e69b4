"""S2 Reducer: what its abstract claims, in time and in the loop."""
