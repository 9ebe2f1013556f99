"""Self-play: the player, the quota of an iteration, and records of finished games."""
