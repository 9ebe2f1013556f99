"""Checkpoints: RUN/checkpoints/IIIIII/ with model.safetensors, optimizer.safetensors, state.json and sha256.

IIIIII iterations are complete; IIIIII-SSSSSSSS was saved in the training of the next one, after step SSSSSSSS.

A folder that can be seen is whole; one whose sums do not match was damaged later and is set aside, not used.
"""

import dataclasses
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file, save_file
from safetensors.torch import save as save_bytes

from az_mpi.files import sha256, whole_folder

SCHEMA_VERSION = 1
_NAME = re.compile(r"\d+(-\d+)?")
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass
class Progress:
    """How far a run has come. Everything random is keyed by these numbers and the seed."""

    iteration: int = 0  # completed ones; also the index of the next
    phase: str = "play"  # what that one does next: "play" its games, or "train", when it has them
    step: int = 0  # optimiser steps taken
    samples_due: float = 0.0  # of the replay ratio, not yet trained on
    games_num: int = 0  # in segments
    positions_num: int = 0  # in segments; the window is counted back from here
    unfinished_games: int = 0  # under way when this was saved; given up if the run ends here
    bad_steps: int = 0  # optimiser steps in a row that were skipped until now, not being finite
    rollbacks: int = 0  # of the weights, after bad steps; each halved the learning rate


class NotFinite(Exception):
    """Tensors that are to be stored or used hold numbers that are not finite."""


@dataclass
class Checkpoint:
    """One checkpoint: progress and tensors by name."""

    progress: Progress
    model: dict
    optimizer: dict


def path_of(folder, progress):
    """Return where under `folder` the checkpoint of a `Progress` belongs."""
    within = f"-{progress.step:08d}" if progress.phase == "train" else ""
    return Path(folder) / f"{progress.iteration:06d}{within}"


def save(folder, checkpoint, keep):
    """Write a checkpoint under `folder` and remove all but the newest `keep`. Raises NotFinite: nothing is written."""
    check_finite(checkpoint.model | checkpoint.optimizer)
    path = path_of(folder, checkpoint.progress)
    with whole_folder(path) as temporary:
        save_file(contiguous(checkpoint.model), temporary / _FILES[0])
        save_file(contiguous(checkpoint.optimizer), temporary / _FILES[1])
        state = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(checkpoint.progress)}
        (temporary / _FILES[2]).write_text(json.dumps(state, indent=1))
        sums = "".join(f"{sha256(temporary / name)}  {name}\n" for name in _FILES)
        (temporary / "sha256").write_text(sums)
    for old in find(folder)[:-keep]:
        shutil.rmtree(old)


def check_finite(tensors):
    """Raise NotFinite unless all numbers in tensors by name are finite."""
    if bad := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise NotFinite(f"{bad[0]} and {len(bad) - 1} other tensors are not finite" if bad[1:] else
                        f"{bad[0]} is not finite")


def contiguous(tensors):
    """Return tensors by name in the layout that safetensors stores."""
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def broadcast(world, tensors, source=0):
    """Return the tensors by name of rank `source` on every rank; the others' are ignored. Collective."""
    content = save_bytes(contiguous(tensors)) if world.rank == source else b""
    return load_bytes(world.broadcast(np.frombuffer(content, np.uint8), source).tobytes())


def find(folder):
    """Return the checkpoint folders, oldest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: tuple(map(int, path.name.split("-"))))


def load_newest(folder, set_aside, before_step=None):
    """Return (the newest whole `Checkpoint` or None, a line about each damaged one after it).

    before_step: leave out those of that many optimiser steps or more.

    A checkpoint is judged by its sums before anything of it is used. set_aside: rename the damaged ones, which the run
    that writes here must do before it writes another of the same name; whoever only looks leaves them.
    """
    lines = []
    for path in reversed(find(folder)):
        problem = damage(path)
        if problem is None:
            checkpoint = _load(path)
            if before_step is None or checkpoint.progress.step < before_step:
                return checkpoint, lines
            continue
        line = f"checkpoint {path} is damaged ({problem}); an older one is used, or the run begins anew"
        if set_aside:
            aside = _free_name(path.with_name(path.name + ".damaged"))
            path.rename(aside)
            line += f"; it is kept as {aside.name}"
        lines.append(line)
    return None, lines


def damage(path):
    """Return what is wrong with a checkpoint folder, one line, or None."""
    try:
        sums = dict(reversed(line.split("  ", 1)) for line in (path / "sha256").read_text().splitlines())
        for name in _FILES:
            if sums.get(name) != sha256(path / name):
                return f"the SHA-256 of {name} does not match"
        version = json.loads((path / "state.json").read_text())["schema_version"]
        if version != SCHEMA_VERSION:
            return f"its schema is {version}; this program reads {SCHEMA_VERSION}"
        check_finite(load_file(path / _FILES[0]) | load_file(path / _FILES[1]))
    except NotFinite as error:
        return str(error)
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _load(path):
    state = json.loads((path / "state.json").read_text())
    del state["schema_version"]
    return Checkpoint(Progress(**state), load_file(path / _FILES[0]), load_file(path / _FILES[1]))


def _free_name(path):
    """Return `path`, or with the first number behind it that is not taken."""
    names = [path, *(path.with_name(f"{path.name}-{k}") for k in range(1, 1000))]
    return next(name for name in names if not name.exists())
