"""Matches and exact solvers."""
