"""The network and what evaluates positions with it."""
