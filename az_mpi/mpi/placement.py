"""The device of each rank, and the ranks that train (`train.ranks`). Every function that takes a world is collective.

Ranks that train come first in the world of a run, so rank 0, root, always trains.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.mpi.world import World

if TYPE_CHECKING:
    from az_mpi.config.schema import Config


def place(config: "Config", world: World, device: str) -> tuple[World, int]:
    """Return (the run's world, trainers first; the number of trainers). Raises Refusal on every rank.

    device: the torch device of this rank."""
    places = world.collect([world.host, gpu_of(device) or "cpu"])
    chosen = trainers(config.train.ranks, places)
    if not any(chosen):
        raise Refusal(
            'train.ranks: "gpu", but no rank sees a GPU\n'
            "  start it where there are GPUs, or --set train.ranks=all to train on processors"
        )
    kinds = {place == "cpu" for (_, place), trains in zip(places, chosen) if trains}
    if len(kinds) > 1:  # their steps would differ in the last bit, and so their weights
        raise Refusal(
            f"train.ranks: {config.train.ranks} would train on GPUs and on processors\n"
            "  --set train.ranks=gpu: ranks without a GPU play"
        )
    if sum(chosen) > config.train.batch_size:
        raise Refusal(
            f"train.batch_size: {counted(config.train.batch_size, 'sample')} in all cannot be split over "
            f"{sum(chosen)} ranks that train\n  --batch_size N with N at least that, or fewer trainers with "
            f"--set train.ranks={config.train.batch_size}: the others keep playing"
        )
    return world.reorder(chosen[world.rank]), sum(chosen)


def trainers(ranks: str | int, places: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each rank whether it trains. ranks: `train.ranks`; places: [host, GPU or "cpu"] of each rank."""
    if ranks == "root_host":
        return [host == places[0][0] for host, _ in places]
    if ranks == "auto":
        ranks = "gpu" if any(place != "cpu" for _, place in places) else "all"
    if ranks == "gpu":  # one rank a GPU; others that share it play
        return [place[1] != "cpu" and place not in places[:k] for k, place in enumerate(places)]
    return [ranks == "all" or k < int(ranks) for k in range(len(places))]


def choose_device(world: World) -> str:
    """Return the torch device of this rank: a GPU of its host, chosen by local rank, or "cpu"."""
    return f"cuda:{world.local_rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def gpu_of(device: str) -> str | None:
    """Return the UUID of a torch device, None for a CPU. Ranks that each see one GPU of a host all call it "cuda:0"."""
    return str(torch.cuda.get_device_properties(device).uuid) if torch.device(device).type == "cuda" else None


def board_of(device: str, host: str) -> str | None:
    """Return a name of the board that a torch device is on, None for a CPU. NCCL wants a board for each rank: two
    slices of one (MIG) have UUIDs of their own, and it refuses them. host: where the device is."""
    if gpu_of(device) is None:
        return None
    properties = torch.cuda.get_device_properties(device)
    if "MIG" not in properties.name:
        return gpu_of(device)
    address = [getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
    return f"{host} {':'.join(map(str, address))}"


def open_device(device: str) -> None:
    """Raise Refusal if a device cannot be used, for example a GPU that another process holds exclusively."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise Refusal(
            f"{device} cannot be used: {str(error).splitlines()[0]}\n  another process may hold it "
            "(nvidia-smi shows who): end that process, or leave the device out with CUDA_VISIBLE_DEVICES"
        ) from error


def gpus_by_host(world: World) -> dict[str, int]:
    """Return {host: how many GPUs its ranks see together}. Collective."""
    num = torch.cuda.device_count() if torch.cuda.is_available() else 0
    seen = world.collect([world.host, [gpu_of(f"cuda:{k}") for k in range(num)]])
    return {host: len({gpu for where, found in seen if where == host for gpu in found}) for host, _ in seen}


def remarks(hosts: Sequence[str], gpus_by_host: dict[str, int]) -> list[str]:
    """Return remarks on the devices of a run, as lines.

    hosts: the host of each rank. gpus_by_host: {host: number of GPUs that its ranks see}.
    """
    ranks_by_host = Counter(hosts)
    lines = [
        f"{host} has {ranks_by_host[host]} ranks and {counted(gpus, 'GPU')}: some share one; give each a single rank"
        for host, gpus in gpus_by_host.items()
        if 0 < gpus < ranks_by_host[host]
    ]
    lines += [
        f"{host} has {gpus} GPUs and {counted(ranks_by_host[host], 'rank')}: some stay idle"
        for host, gpus in gpus_by_host.items()
        if gpus > ranks_by_host[host]
    ]
    if len(set(gpus_by_host.values())) > 1:
        lines.append(
            "hosts have different numbers of GPUs: "
            + ", ".join(f"{host} {gpus}" for host, gpus in gpus_by_host.items())
        )
    return lines
