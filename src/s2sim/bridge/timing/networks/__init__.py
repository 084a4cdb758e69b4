"""Known networks on drawn inputs, for their times alone; parameters are called as in their layer tables."""
