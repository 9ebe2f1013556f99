"""Checkpoints: RUN/checkpoints/IIIIII/ with model.safetensors, optimizer.safetensors, state.json and sha256.

IIIIII iterations are complete; IIIIII-SSSSSSSS was saved in the training of the next one, after step SSSSSSSS.

A folder that can be seen is whole; one whose sums do not match was damaged later and is set aside, not used.
"""

import dataclasses
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file
from safetensors.torch import save as save_bytes

from az_mpi.files import create, sha256, sync, whole_folder

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


def save(folder, checkpoint, keep, before=None):
    """Write a checkpoint under `folder`, unless it is there, and remove all but the newest `keep`.

    After an OSError it may be called again. before: see `files.whole_file`.
    """
    path = path_of(folder, checkpoint.progress)
    if path.exists():
        sync(path.parent)
    else:
        state = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(checkpoint.progress)}
        contents = [to_bytes(checkpoint.model), to_bytes(checkpoint.optimizer)]
        contents.append(json.dumps(state, indent=1).encode())
        with whole_folder(path, before) as temporary:
            for name, content in zip(_FILES, contents):
                create(temporary / name, content)
            digests = [hashlib.sha256(content).hexdigest() for content in contents]
            create(temporary / "sha256", "".join(f"{d}  {name}\n" for d, name in zip(digests, _FILES)).encode())
    for old in find(folder)[:-keep]:
        shutil.rmtree(old)


def to_bytes(tensors):
    """Return tensors by name as the content of a safetensors file."""
    return save_bytes({name: tensor.contiguous() for name, tensor in tensors.items()})


def broadcast(world, tensors):
    """Return root's tensors by name on every rank; the others' are ignored. Collective."""
    content = to_bytes(tensors) if world.is_root else b""
    return load_bytes(world.broadcast(np.frombuffer(content, np.uint8)).tobytes())


def find(folder):
    """Return the checkpoint folders, oldest first."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: tuple(map(int, path.name.split("-"))))


def load_newest(folder, set_aside):
    """Return (the newest whole `Checkpoint` or None, a line about each damaged one after it).

    A checkpoint is judged by its sums before anything of it is used. set_aside: rename the damaged ones, which the run
    that writes here must do before it writes another of the same name; whoever only looks leaves them.
    """
    lines = []
    for path in reversed(find(folder)):
        problem = damage(path)
        if problem is None:
            return _load(path), lines
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
