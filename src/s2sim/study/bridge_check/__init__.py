"""Whether reducers do between real processes what they do in memory."""
