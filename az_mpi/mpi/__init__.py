"""Ranks: collectives that name a lost rank, asynchronous sums, the control channel, devices and
placement, commands that run on all ranks."""
