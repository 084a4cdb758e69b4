"""From what a user asks to a verdict: scenario, recording, prediction, comparison, break-even rates, extrapolation."""
