"""Before a run: whether a game's rules hold, which configuration, for how long: check-game, suggest, compare."""
