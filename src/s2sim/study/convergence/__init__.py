"""What a reducer does to training: loss against iterations and against the simulated cluster's time."""
