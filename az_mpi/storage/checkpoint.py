"""Checkpoints: RUN/checkpoints/IIIIII/ with model.safetensors, optimizer.safetensors, state.json and sha256.

IIIIII is the number of complete iterations. IIIIII-SSSSSSSS was saved during the training of the next iteration, after
step SSSSSSSS. A folder appears only when it is whole. If its SHA-256 sums do not match, it was damaged later, and is
set aside.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save as save_bytes
from safetensors.torch import load as load_bytes

from az_mpi.core import files
from az_mpi.core.earlier_names import modern_keys
from az_mpi.core.files import create, remove_folder, sync, whole_folder
from az_mpi.core.problems import Refusal
from az_mpi.storage.checkpoint_names import find

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

Tensors = dict[str, torch.Tensor]  # by name
SCHEMA_VERSION = 1
HOURS_MAX = 1e6  # more in a record are no hours
# What the tensors of heads were called before November 2026.
_OLD_NAME = re.compile(r"^(policy|value)_(conv|hidden|out)\.")
_BLOCK = re.compile(r"tower\.(\d+)\.")  # the beginning of the names of a block's tensors
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
SHOWN_MAX = 4  # tensors that a message lists


@dataclass
class Progress:
    """How far a run has come. All random numbers are derived from these numbers and the seed."""

    iteration: int = 0  # complete iterations; also the index of the next one
    phase: str = "play"  # what the next iteration does next: "play" or "train"
    step: int = 0  # optimiser steps taken
    samples_due: float = 0.0  # samples that the replay ratio asks for and that are not trained on yet
    num_games: int = 0  # in segments
    num_positions: int = 0  # in segments; the window ends here
    unfinished_games: int = 0  # games under way when this was saved; lost if the run ends here
    bad_steps: int = 0  # newest optimiser steps in a row that were skipped because they were not finite
    hours: float = 0.0  # that the starts of this run took until then, where `train.hours` limits them
    rollbacks: int = 0  # how often training went back to a checkpoint, with half the learning rate each time

    def copy(self, **changes: Any) -> "Progress":
        """Return a copy with these values changed."""
        return dataclasses.replace(self, **changes)


class NotFinite(ValueError):
    """Tensors contain numbers that are not finite."""


@dataclass
class Checkpoint:
    """One checkpoint: progress and tensors by name."""

    progress: Progress
    model: Tensors
    optimizer: Tensors


def path_of(folder: str | Path, progress: Progress) -> Path:
    """Return the path under `folder` of the checkpoint of a `Progress`."""
    within = f"-{progress.step:08d}" if progress.phase == "train" else ""
    return Path(folder) / f"{progress.iteration:06d}{within}"


def save(folder: str | Path, checkpoint: Checkpoint, keep: int, before: Callable[[], None] | None = None) -> None:
    """Write a checkpoint under `folder`, unless it is there, and remove all but the newest `keep`.

    Raises NotFinite, and then has written nothing. It may be called again after an OSError. before: see
    `files.whole_file`.
    """
    path = path_of(folder, checkpoint.progress)
    if files.is_there(path):
        sync(path.parent)
    else:
        check_finite(checkpoint.model | checkpoint.optimizer)
        state = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(checkpoint.progress)}
        contents = [to_bytes(checkpoint.model), to_bytes(checkpoint.optimizer)]
        contents.append(json.dumps(state, indent=1).encode())
        with whole_folder(path, before) as temporary:
            for name, content in zip(_FILES, contents):
                create(temporary / name, content)
            digests = [hashlib.sha256(content).hexdigest() for content in contents]
            create(temporary / "sha256", "".join(f"{d}  {name}\n" for d, name in zip(digests, _FILES)).encode())
    for old in find(folder)[:-keep]:
        remove_folder(old)


def check_finite(tensors: Tensors) -> None:
    """Raise NotFinite unless all numbers in the tensors are finite."""
    if bad := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise NotFinite(
            f"{bad[0]} and {len(bad) - 1} other tensors are not finite" if bad[1:] else f"{bad[0]} is not finite"
        )


def to_bytes(tensors: Tensors, about: dict[str, str] | None = None) -> bytes:
    """Return tensors as the content of a safetensors file. about: {name: text} to store with them."""
    # From numpy arrays: safetensors.torch leaves cycles of ctypes objects, which pile up until Python collects cycles.
    return save_bytes({name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}, about)


def from_bytes(content: bytes) -> Tensors:
    """Return the tensors in the content of a safetensors file."""
    return {_OLD_NAME.sub(r"heads.\1.\2.", name): tensor for name, tensor in load_bytes(content).items()}


def from_bytes_with_about(content: bytes) -> tuple[Tensors, dict[str, str]]:
    """Return (the tensors in the content of a safetensors file, what `to_bytes` has stored with them). Raises
    ValueError; OSError if memory is too little."""
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return from_bytes(content), header.get("__metadata__", {})
    except Exception as error:  # safetensors has errors of its own
        raise files.lack_of_memory(error) or ValueError(f"{type(error).__name__}: {error}") from error


def broadcast(world: "World", tensors: Tensors | None, source: int = 0) -> Tensors:
    """Return the tensors of rank `source` on every rank; those of the others are ignored. Collective over world."""
    content = to_bytes(tensors) if tensors is not None and world.rank == source else b""
    return load_bytes(world.broadcast(np.frombuffer(content, np.uint8), source).tobytes())


def share(world: "World", state: Checkpoint | None, source: int = 0) -> Checkpoint:
    """Return the checkpoint of rank `source` on every rank; those of the others are ignored. Collective over world."""
    mine = state if world.rank == source else None
    progress = world.share(vars(mine.progress) if mine else None, source)
    model = broadcast(world, mine.model if mine else None, source)
    optimizer = broadcast(world, mine.optimizer if mine else None, source)
    return Checkpoint(Progress(**progress), model, optimizer)


def load_newest(
    folder: str | Path, set_aside: bool, ours: Tensors | None = None, before_step: int | None = None
) -> tuple[Checkpoint | None, list[str]]:
    """Return (the newest whole checkpoint or None, a line about each damaged one that is newer).

    set_aside: rename the damaged ones. The run that writes here must do that, as it will write one of the same name; a
    command that only reads must not. ours: see `check_fits`. before_step: consider only those with fewer optimiser
    steps. Raises Refusal if the newest whole one is of another network; OSError if the file system fails for a while.
    """
    lines = []
    for path in reversed(find(folder)):
        try:
            found = read(path)
            if before_step is None or found.progress.step < before_step:
                check_fits(path, found, ours)
                return found, lines
            continue
        except (OSError, ValueError) as error:
            if files.unavailable(error):
                raise
            line = f"checkpoint {path} is damaged ({error}); an older one is used if there is one"
        if set_aside:
            line += f"; it is kept as {files.set_aside(path).name}"
        lines.append(line)
    return None, lines


def read(path: Path) -> Checkpoint:
    """Return the checkpoint in a folder. Raises ValueError if it is damaged; OSError."""
    lines = [line.partition("  ") for line in files.read(path / "sha256").decode().splitlines()]
    sums = {name: digest for digest, _, name in lines}
    contents = [files.read(path / name, files.DATA_BYTES_MAX) for name in _FILES]
    for name, content in zip(_FILES, contents):
        if sums.get(name) != hashlib.sha256(content).hexdigest():
            raise ValueError(f"the SHA-256 of {name} does not match")
    try:
        state = json.loads(contents[2], object_hook=modern_keys)
        version = state.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"its schema is {version}; this program reads {SCHEMA_VERSION}")
        progress = Progress(**state)
        for name, default in vars(Progress()).items():
            kind = (int, float) if isinstance(default, float) else type(default)
            value = getattr(progress, name)
            if not isinstance(value, kind) or (not isinstance(value, str) and not 0 <= value < 2**53):
                raise ValueError(f"state.json: {name} is {value!r}")
        found = Checkpoint(progress, from_bytes(contents[0]), from_bytes(contents[1]))
        check_finite(found.model | found.optimizer)
        return found
    except ValueError:
        raise
    except Exception as error:  # the sums match, so another program wrote it
        raise files.lack_of_memory(error, path) or ValueError(f"{type(error).__name__}: {error}") from error


def damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint folder, in one line, or None. Raises OSError if the file system fails for
    a while."""
    try:
        read(path)
    except NotFinite as error:
        return str(error)
    except (OSError, ValueError) as error:
        if files.unavailable(error):
            raise
        return f"{type(error).__name__}: {error}".removeprefix("ValueError: ")
    return None


def _damage_now(path):
    try:
        return damage(path)
    except OSError as error:
        return f"it cannot be read now ({error.strerror})"


def added_blocks(tensors: Tensors, ours: Tensors) -> Tensors:
    """Return the tensors in `ours` of the tower's blocks after the last block in `tensors`: the blocks by which a run's
    tower has grown. {} if it has not grown."""
    before = 1 + max((int(match[1]) for match in map(_BLOCK.match, tensors) if match), default=-1)
    blocks = {name: int(match[1]) for name in ours if (match := _BLOCK.match(name))}
    return {name: ours[name] for name, block in blocks.items() if 0 < before <= block}


def differences(tensors: Tensors, ours: Tensors) -> list[str]:
    """Return a line for each tensor that differs in name, type or shape. `tensors` may lack `added_blocks`."""
    names = sorted((tensors.keys() | ours.keys()) - added_blocks(tensors, ours).keys())
    rows = [(name, _kind(tensors.get(name)), _kind(ours.get(name))) for name in names]
    return [f"{name} is {there}, in this run's network {here}" for name, there, here in rows if there != here]


def _kind(tensor):
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def check_fits(path: Path, found: Checkpoint, ours: Tensors | None) -> None:
    """Raise Refusal if a checkpoint, read from `path`, is not of the network with the tensors `ours`. None: any network
    will do."""
    if ours is None:
        return
    lines = [f"model.safetensors: {line}" for line in differences(found.model, ours)]
    for key, tensor in found.optimizer.items():
        name = key.rpartition(".")[0]
        if name not in ours or tensor.shape not in ((), ours[name].shape):
            lines.append(f"optimizer.safetensors: {key} is {_kind(tensor)}, which fits no tensor of this run's network")
    if lines:
        more = [f"... and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
        told = [
            f"--logdir {path.parent.parent}: checkpoint {path} is whole, but is another network's; it stays there",
            *lines[:SHOWN_MAX],
            *more,
            f"it is probably another run's: move it out of {path.parent} and put this run's own back;",
            "without one, --without_checkpoint begins again with new weights and the games that are stored;",
            "or give another --logdir",
        ]
        raise Refusal("\n  ".join(told))


def traces(folder: str | Path) -> list[str]:
    """Return lines of evidence that a run has saved checkpoints, whole or not: one for each that is there or was set
    aside; else one if metrics.jsonl has a record of a checkpoint after training. [] if none was saved yet."""
    there = [*find(folder), *(Path(folder) / name for name in files.names(folder) if ".damaged" in name)]
    if there:
        return [f"{path}: {_damage_now(path) or 'it is whole'}" for path in there]
    trained = [f"iteration {iteration}, step {step}" for iteration, step, _ in records(folder) if step]
    return [f"{folder}: none is there; metrics.jsonl tells of one after {trained[-1]}"] if trained else []


def records(folder: str | Path) -> Iterator[tuple[int, int, float]]:
    """Yield what metrics.jsonl tells of each checkpoint under `folder` that was saved: (iteration, step, hours of the
    run, 0 if they do not count). Raises OSError."""
    metrics = Path(folder).parent / "metrics.jsonl"
    for line in files.read(metrics, files.LINES_BYTES_MAX).splitlines() if files.is_there(metrics) else []:
        # A checkpoint has a record of its own; earlier versions put its seconds into the iteration's record.
        if b'"checkpoint"' in line or b'"save_s"' in line:
            with suppress(ValueError, KeyError, TypeError, OverflowError):  # a line that was cut off
                record = files.parse_json(line)
                yield int(record["iteration"]), int(record["step"]), float(record.get("hours", 0.0))


def hours_told(folder: str | Path, progress: Progress) -> float:
    """Return the hours of the run when it last stopped at this `Progress`, as far as records tell, else its own."""
    told = [progress.hours]
    with suppress(OSError):
        told += [
            hours
            for iteration, step, hours in records(folder)
            if (iteration, step) == (progress.iteration, progress.step) and hours < HOURS_MAX
        ]
    return max(told)


def refuse_unusable(folder: str | Path, restart: bool, ours: Tensors | None = None) -> Checkpoint | None:
    """Return the newest whole checkpoint, from which a run continues, or None if it has none yet.

    Raises Refusal if that checkpoint is of another network (see `check_fits`), or if there were checkpoints and none is
    whole, unless the user asked to start without one (`restart`). Raises OSError if the file system fails."""
    found, _ = load_newest(folder, set_aside=False, ours=ours)
    if found is None and not restart and (lines := traces(folder)):
        raise Refusal(
            "\n  ".join(
                [
                    f"--logdir {Path(folder).parent}: no checkpoint of this run is whole",
                    *lines,
                    "put a whole copy of one "
                    "there; or begin again with new weights and the games that are stored: --without_checkpoint;",
                    "or begin a new run: give another --logdir",
                ]
            )
        )
    return found
