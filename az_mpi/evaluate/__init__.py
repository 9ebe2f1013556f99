"""How well a network plays: matches, ladders, ratings, exact solvers, and other programs as opponents."""
