"""How fast bulk data travels between the ranks; benchmarks/exchange.py measures with the same calls."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.doctor.checks import OK, WARNING, Check
from az_mpi.mpi.world import World

SIZE = 1 << 22  # bytes of a rank
RUNS = 3  # of each call; the fastest counts
SLOW_MB_PER_S = 20.0  # below this the network gets a warning


def examine(world: World) -> tuple[list[Check], dict[str, Any]]:
    """Return (checks, figures). Collective."""
    if world.size == 1:
        return [Check("exchange", OK, "one rank: nothing to exchange")], {}
    rates = {}
    for name, (call, moved) in bulk_calls(world, SIZE).items():
        rates[name] = moved / min(measure(world, call, RUNS)) / 1e6
    words = ", ".join(f"{name} {rate:,.0f} MB/s" for name, rate in rates.items())
    level = WARNING if min(rates.values()) < SLOW_MB_PER_S else OK
    figures = {f"{name}_mb_per_s": round(rate, 1) for name, rate in rates.items()}
    return [
        Check(
            "exchange",
            level,
            f"{words} in and out of the busiest rank, {SIZE >> 20} MiB a rank",
            "name the fast network: --mca btl_tcp_if_include INTERFACE (docs/hosts.md, Interfaces)",
        )
    ], {"exchange": figures}


def measure(world: World, call: Callable[[], object], runs: int) -> list[float]:
    """Return the seconds of `runs` calls, each that of the slowest rank. Collective."""
    seconds = []
    for _ in range(runs + 1):  # the first one makes connections and buffers, so it does not count
        world.barrier()
        begun = time.perf_counter()
        call()
        seconds.append(max(world.collect(time.perf_counter() - begun)))
    return seconds[1:]


def bulk_calls(world: World, size: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Return {name: (call, bytes through the busiest rank)} for `size` bytes of rows of 64 bytes."""
    rows = np.zeros((size // 64, 64), np.uint8)
    destination = np.arange(len(rows)) % world.size
    others = world.size - 1
    return {
        "broadcast": (lambda: world.broadcast(rows), size * min(others, 1)),
        "gather": (lambda: world.gather(rows), size * others),
        "exchange": (lambda: world.exchange(rows, destination), 2 * size * others // world.size),
    }
