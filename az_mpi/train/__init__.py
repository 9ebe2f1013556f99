"""Training on the replay window."""
