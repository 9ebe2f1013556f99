"""Search over batches of trees; knows nothing of any game."""
