"""Training: the learner, losses, optimiser, schedule, the replay window, and back ends that sum gradients."""
