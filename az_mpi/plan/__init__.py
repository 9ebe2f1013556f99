"""Before a run: whether a game's rules hold, which configuration, for how long, on how many ranks: check-game, suggest,
compare, scaling."""
