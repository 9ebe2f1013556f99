"""Which game, which configuration, for how long: check-game, suggest and compare."""
