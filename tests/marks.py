"""Marks of parametrised tests."""

import importlib.util

import pytest
import torch

from az_mpi.network.engines.int8 import has_int8


def slow(*values):
    """Return a set of parameters that only `make test-long` takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def quick(*values):
    """Return a set of parameters that `make test` takes too."""
    return pytest.param(*values, marks=pytest.mark.quick)


def _lacks_int8():
    """Return why no network is evaluated in int8 here, or ""."""
    if importlib.util.find_spec("openvino") is None:
        return "OpenVINO could not be installed here"
    return "" if has_int8() else "this processor lacks AVX2, AVX512-VNNI and AMX"


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
needs_int8 = pytest.mark.skipif(bool(_lacks_int8()), reason=_lacks_int8() or "-")
OPENSPIEL = "openspiel:clobber(rows=4,columns=4)"
needs_openspiel = pytest.mark.skipif(
    importlib.util.find_spec("pyspiel") is None, reason="OpenSpiel is optional; it could not be installed here"
)
