"""Checks of devices, cores, memory and threads. Pure functions from the facts of all ranks, see `facts.gather`."""

import dataclasses
from collections import Counter

from az_mpi.core import room
from az_mpi.core.host_facts import HostFacts
from az_mpi.core.printing import counted
from az_mpi.doctor.checks import OK, PROBLEM, WARNING, Check, Ranks, ranks_in_words
from az_mpi.mpi.cores import Allowed, in_words, share

GIB = 2**30


def devices(ranks: Ranks) -> tuple[list[Check], list[tuple]]:
    """Check what the ranks compute on; return (checks, rows of a table, the heading first)."""
    allowed = [_allowed(rank) for rank in ranks]
    table: list[tuple] = [("rank", "host", "cores", "device")]
    for k, rank in enumerate(ranks):
        cores = in_words(share(allowed[k], allowed), allowed[k])
        table.append((k, rank["host"], cores, _device_in_words(rank["libraries"]["torch"])))
    found = [*_broken_gpus(ranks), *_unused_gpus(ranks), *_shared_gpus(ranks)]
    num = sum(bool(rank["libraries"]["torch"].get("devices")) for rank in ranks)
    text = f"{num} of {len(ranks)} ranks have a GPU" if num else "no GPU: processors play and train"
    return [*found, Check("devices", OK, text)], table


def _device_in_words(torch):
    """Return what a rank computes on, from the facts of its torch."""
    if "error" in torch:
        return "unknown, without torch"
    if torch.get("devices"):
        gpu = torch["devices"][torch["device"]]
        return f"cuda:{torch['device']} {gpu['name']}, {gpu['memory_bytes'] / GIB:.0f} GiB, NCCL {torch['nccl']}"
    return "cpu, bf16" if torch["bf16"] else "cpu, no bf16 instructions"


def _broken_gpus(ranks):
    """Check whether each rank's GPU works."""
    torches = [rank["libraries"]["torch"] for rank in ranks]
    broken = [k for k, torch in enumerate(torches) if torch.get("device_error")]
    if not broken:
        return []
    return [
        Check(
            "device",
            PROBLEM,
            f"the GPU of {ranks_in_words(broken)} does not work: {torches[broken[0]]['device_error']}",
            "nvidia-smi shows who holds it and the driver's version; CUDA_VISIBLE_DEVICES leaves it out",
        )
    ]


def _unused_gpus(ranks):
    """Check whether torch sees a GPU wherever the host has a driver for one."""
    torches = [rank["libraries"]["torch"] for rank in ranks]
    unused = [
        k
        for k, (rank, torch) in enumerate(zip(ranks, torches))
        if rank["gpu_files"] and "error" not in torch and not torch["devices"]
    ]
    if not unused:
        return []
    build = torches[unused[0]]["cuda_build"]
    return [
        Check(
            "device",
            WARNING,
            f"the host of {ranks_in_words(unused)} has an NVIDIA driver, and torch "
            f"sees no GPU (it is built {f'for CUDA {build}' if build else 'without CUDA'})",
            "install the CUDA build of torch that the driver can run; look at CUDA_VISIBLE_DEVICES",
        )
    ]


def _shared_gpus(ranks):
    """Check whether ranks that share a GPU do so through NVIDIA's Multi-Process Service."""
    num_ranks: Counter[tuple] = Counter()  # of each GPU
    for rank in ranks:
        torch = rank["libraries"]["torch"]
        if torch.get("devices"):
            num_ranks[rank["host"], torch["devices"][torch["device"]]["uuid"]] += 1
    sharing = {host for (host, _), num in num_ranks.items() if num > 1}
    hosts = sorted(sharing & {rank["host"] for rank in ranks if not rank["mps"]})
    if not hosts:
        return []
    return [
        Check(
            "device",
            OK,
            f"ranks share a GPU of {', '.join(hosts)} without NVIDIA's Multi-Process "
            "Service (nvidia-cuda-mps-control -d before mpirun): they compute on it alternately",
        )
    ]


def _allowed(rank):
    return Allowed(rank["host"], rank["cores"], rank["quotas"])


def cores(ranks: Ranks) -> list[Check]:
    """Check the cores of each host (affinity, cgroup quota) and the variables that set numbers of threads."""
    found = []
    for host in dict.fromkeys(rank["host"] for rank in ranks):
        here = [k for k, rank in enumerate(ranks) if rank["host"] == host]
        facts = [ranks[k] for k in here]
        total = facts[0]["num_cores"]
        allowed = set().union(*[one["cores"] for one in facts])
        limits = [_allowed(one) for one in facts]
        quotas = [quota for one in limits if (quota := one.quota()) is not None]
        words = f"{host}: {ranks_in_words(here)} may run on {len(allowed)} of {total} cores"
        words += f", with a cgroup quota of {min(quotas):.4g}" if quotas else ""
        level, cure = OK, ""
        if len(here) > len(allowed):
            level, cure = WARNING, "no more ranks a host than it has cores"
            words += ", fewer than ranks"
        elif quotas and len(here) > min(quotas):
            level, cure = WARNING, "no more ranks than the quota has cores, or a larger one (--cpus of a container)"
            words += ", fewer than ranks"
        elif quotas:
            words += f": the ranks use {' + '.join(str(share(one, limits)) for one in limits)}"
        elif len(allowed) < total:
            level = WARNING if any(len(one["cores"]) == 1 for one in facts) and total > len(here) else OK
            cure = "mpirun --bind-to none, or --map-by slot:PE=N --bind-to core; srun --cpus-per-task=N"
        found.append(Check("cores", level, words, cure))
        load = min(one["load"] for one in facts)
        if load > total:
            found.append(
                Check(
                    "load",
                    WARNING,
                    f"{host}: a load of {load:.1f} on {total} cores: other programs take "
                    "them, and every figure below is too low",
                    "top shows who it is",
                )
            )
    return [*found, *threads(ranks)]


def threads(ranks: Ranks) -> list[Check]:
    """Check the environment variables that may keep threads off some cores of their rank."""
    found = []
    for name in dict.fromkeys(name for rank in ranks for name in rank["threads"]):
        if name == "NUMBA_NUM_THREADS" and not any(
            0 < _number(rank["threads"].get(name)) < len(rank["cores"]) for rank in ranks
        ):
            continue  # it only sets an upper limit
        values = " or ".join(sorted({rank["threads"].get(name, "(not set)") for rank in ranks}))
        found.append(
            Check(
                "threads",
                WARNING,
                f"{name}={values} may keep threads off some of their rank's cores",
                f"unset {name}: mpirun and srun bind, and each rank takes its share of the cores",
            )
        )
    return found


def _number(text):
    return int(text) if text and text.isdecimal() else 0


def kernels(ranks: Ranks) -> list[Check]:
    """Check whether compiled kernels can be kept, on each host."""
    hosts: dict[tuple, list] = {}  # by what is wrong there
    for rank in ranks:
        if rank["kernels"]["error"]:
            hosts.setdefault(tuple(rank["kernels"].values()), []).append(rank["host"])
    return [
        Check(
            "kernels",
            WARNING,
            f"compiled kernels cannot be kept in {folder} on {', '.join(names)}: {error}; at "
            "each start every rank compiles those that are not there",
            "make room there, or set NUMBA_CACHE_DIR to a folder with room (mpirun -x NUMBA_CACHE_DIR)",
        )
        for (folder, error), names in hosts.items()
    ] or [Check("kernels", OK, "compiled kernels can be kept")]


def memory(ranks: Ranks) -> list[Check]:
    """Check the memory of each host."""
    found = []
    for host in dict.fromkeys(rank["host"] for rank in ranks):
        facts = [rank["memory"] for rank in ranks if rank["host"] == host]
        limits = [one["limit_bytes"] for one in facts if one["limit_bytes"]]
        room = min([one["available_bytes"] for one in facts] + limits)
        words = f"{host}: {facts[0]['total_bytes'] / GIB:.1f} GiB, {facts[0]['available_bytes'] / GIB:.1f} available"
        words += f"; a cgroup limit of {min(limits) / GIB:.2f} GiB" if limits else ""
        tight = room < GIB * len(facts)
        words += f", for {counted(len(facts), 'rank')}" if tight else ""
        found.append(
            Check(
                "memory",
                WARNING if tight else OK,
                words,
                "a rank with torch and Horovod takes about 1 GiB: fewer ranks, or ask for more memory",
            )
        )
    return found


def rooms(ranks: Ranks) -> list[Check]:
    """Check the room for temporary files and in /dev/shm of each host."""
    found = []
    for host in dict.fromkeys(rank["host"] for rank in ranks):
        here = [rank for rank in ranks if rank["host"] == host]
        facts = HostFacts(**{field.name: here[0][field.name] for field in dataclasses.fields(HostFacts)})
        if lack := room.lack_of_temporary(facts, len(here)):
            found.append(Check("temporary_files", PROBLEM, f"{host}: {lack[0]}", lack[1]))
        free = min((rank["shared_bytes"] for rank in here if rank["shared_bytes"] is not None), default=None)
        if lack := room.lack_of_shared_memory(free, len(here)):
            found.append(Check("shared_memory", WARNING, f"{host}: {lack[0]}", lack[1]))
    return found or [Check("room", OK, "enough for temporary files and for messages through /dev/shm")]
