"""A run's files: its folder, its lock, checkpoints, segments, and the check of all of them."""
