"""What several reducers need."""
