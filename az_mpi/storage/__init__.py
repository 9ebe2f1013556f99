"""A run's files: its folder, its lock, checkpoints, segments, the writer, and the check of all of them."""
