"""What the sketching reducers share: settings, sizes, units, and what a sketch costs a GPU."""
