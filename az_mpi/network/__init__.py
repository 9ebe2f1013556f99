"""The network with its heads, and the engines and evaluators that evaluate positions with it."""
