"""Marks of parametrised tests."""

import pytest


def slow(*values):
    """Return a set of parameters that only `make test-long` takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def quick(*values):
    """Return a set of parameters that `make test` takes too."""
    return pytest.param(*values, marks=pytest.mark.quick)
