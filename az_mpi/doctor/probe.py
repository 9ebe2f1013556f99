"""A program that imports the libraries a run needs and prints a line of JSON for each.

It is a process of its own and announces each library before it imports it, so that the doctor can name one that crashes
or hangs the interpreter. The argument is the local rank, which selects the device to try.
"""

import importlib
import json
import os
import re
import sys
import time
from typing import Any

MPI_LIBRARY = re.compile(r"/libmpi(?:ch|_cray|_gnu\w*|_intel\w*)?\.so[^/]*$")
LIBRARIES = ("numpy", "numba", "h5py", "pydantic", "safetensors", "psutil", "mpi4py", "torch", "horovod", "openvino")


def look(name: str, local_rank: int) -> dict[str, Any]:
    """Import a library and return its facts. Raises whatever the import raises."""
    if name == "mpi4py":
        return mpi()
    if name == "torch":
        return torch(local_rank)
    if name == "horovod":
        return horovod()
    return {"version": getattr(importlib.import_module(name), "__version__", "unknown")}


def mpi() -> dict[str, Any]:
    """Return the facts of mpi4py and of its MPI; more of them if MPI has been started."""
    import mpi4py
    from mpi4py import MPI

    levels = ("THREAD_SINGLE", "THREAD_FUNNELED", "THREAD_SERIALIZED", "THREAD_MULTIPLE")
    vendor, version = MPI.get_vendor()
    facts: dict[str, Any] = {"version": mpi4py.__version__, "vendor": vendor, "libraries": mapped_mpi()}
    facts |= {"mpi_version": ".".join(map(str, version)), "standard": ".".join(map(str, MPI.Get_version()))}
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return facts
    facts["thread_level"] = next(name for name in levels if getattr(MPI, name) == MPI.Query_thread())
    try:
        facts["ulfm"] = not MPI.COMM_SELF.Is_revoked()
    except (MPI.Exception, NotImplementedError):
        facts["ulfm"] = False
    facts["ulfm_on"] = facts["ulfm"] and os.environ.get("OMPI_MCA_mpi_ft_enable", "0") not in ("0", "false")
    return facts


def torch(local_rank: int) -> dict[str, Any]:
    """Return torch's version, what it can compute on, and whether this rank's GPU works."""
    import torch

    facts = {"version": torch.__version__, "cuda_build": torch.version.cuda, "devices": []}
    facts["bf16"] = bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    if not torch.cuda.is_available():
        return facts
    facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for k in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(k)
        facts["devices"].append({"name": about.name, "uuid": str(about.uuid), "memory_bytes": about.total_memory})
    facts["device"] = local_rank % torch.cuda.device_count()
    try:
        ones = torch.ones(256, 256, device=f"cuda:{facts['device']}")
        assert (ones @ ones)[0, 0].item() == 256
    except (RuntimeError, AssertionError) as error:
        facts["device_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return facts


def horovod() -> dict[str, Any]:
    """Return Horovod's version, what it was built with, and the MPI libraries that are loaded beside it."""
    try:
        importlib.import_module("mpi4py.MPI")  # first, as in a run: does Horovod bring a second MPI library?
    except Exception:
        pass  # reported under its own name
    import horovod
    import horovod.torch as hvd

    built = ("mpi", "gloo", "nccl", "cuda", "rocm", "ccl")
    return {
        "version": horovod.__version__,
        "built": [name for name in built if getattr(hvd, f"{name}_built")()],
        "libraries": mapped_mpi(),
    }


def mapped_mpi() -> list[str]:
    """Return the files of MPI libraries that are mapped into this process, links resolved."""
    with open("/proc/self/maps") as file:
        paths = {line.split(maxsplit=5)[5].strip() for line in file if len(line.split(maxsplit=5)) == 6}
    return sorted({os.path.realpath(path) for path in paths if MPI_LIBRARY.search(path)})


def main(local_rank: int) -> None:
    """Import each library; print a line when it begins and one with its facts."""
    for name in LIBRARIES:
        print(json.dumps({"name": name, "begun": True}), flush=True)
        begun = time.perf_counter()
        try:
            facts = look(name, local_rank)
        except Exception as error:
            facts = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:400]}
        facts["import_s"] = round(time.perf_counter() - begun, 2)
        # A library may have printed a line without its end.
        print("\n" + json.dumps({"name": name, "facts": facts}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
