"""Playing with a trained network outside a run."""
