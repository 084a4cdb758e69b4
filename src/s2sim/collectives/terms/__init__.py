"""The time of a schedule as terms: how often it pays each constant of a library and waits for each class of link."""
