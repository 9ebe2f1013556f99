"""One run's state, and what happens to it: set-up, exchange, save and resume, evaluations, roll-back, recovery."""
