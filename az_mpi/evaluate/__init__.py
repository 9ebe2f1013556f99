"""How well a network plays: matches, ratings and exact solvers."""
