"""Learning from the replay window."""
