"""Self-play: a batch of games, where they begin, the quota of an iteration, and records of finished games."""
