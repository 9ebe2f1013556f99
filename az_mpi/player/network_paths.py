"""Which networks there are, and for which game, as far as names and small files say it: neither NumPy nor torch nor a
network is loaded here, so that a program which waits for an answer gets it at once."""

import json
import os
from pathlib import Path

from az_mpi.core import files
from az_mpi.core.earlier_names import starts_folder
from az_mpi.core.problems import Refusal, escape
from az_mpi.core.registry import parse
from az_mpi.storage import checkpoint_names

ZOO = Path(__file__).parents[1] / "zoo"  # networks that come with az_mpi, written by `export --to zoo`
EXPORTED = (".onnx", ".safetensors")  # files that `export` writes and `load_player` reads


def zoo_file(path: str | Path) -> Path | None:
    """Return the file of a network that comes with az_mpi: for "zoo:connect4", and for "connect4" where there is
    nothing of that name; None for any other path. Raises Refusal if the zoo has no such network."""
    name = str(path).removeprefix("zoo:")
    is_zoo = str(path).startswith("zoo:")
    file = ZOO / f"{name}.safetensors"
    if (is_zoo or not os.path.lexists(path)) and name in zoo_names():
        return file
    if is_zoo:
        raise Refusal(
            f"{path}: az_mpi comes with no network of this name\n  there are: " + (", ".join(zoo_names()) or "none yet")
        )
    return None


def zoo_names() -> list[str]:
    """Return the names of the networks that come with az_mpi."""
    return [name.removesuffix(".safetensors") for name in files.names(ZOO) if name.endswith(".safetensors")]


def run_of(path: Path) -> Path:
    """Return the run's folder that `path` is or is in. Raises Refusal."""
    if folder := run_above(path):
        return folder
    shipped = f"; or a network that comes with az_mpi: {', '.join(zoo_names())}" if zoo_names() else ""
    raise Refusal(
        f"{path} is not a run's folder, nor in one\n  name the --logdir of a run, or a checkpoint in it{shipped}"
    )


def run_above(path: Path) -> Path | None:
    """Return the run's folder that `path` is or is in; None if there is none."""
    for folder in (path, *path.absolute().parents):
        # config.json alone may be another program's.
        described = (folder / "config.json").is_file() and (folder / "checkpoints").is_dir()
        if described or starts_folder(folder).is_dir():
            return folder
    return None


def find_network(run: Path, name: str) -> Path:
    """Return the path for `load_player` of a network of a run: "newest" for the newest checkpoint, "best" for the best
    network so far, or a name as in RUN/checkpoints or RUN/best. Raises Refusal, which lists the names."""
    if name == "newest" and (run.suffix in EXPORTED or zoo_file(run)):
        return run
    saved = checkpoint_names.find(run / "checkpoints")
    best = [run / "best" / file for file in files.names(run / "best") if file.endswith(".safetensors")]
    named = {path.stem: path for path in (*sorted(best), *saved)}  # a checkpoint before a best network of its name
    path = {"newest": run, "best": max(best, default=None)}.get(name, named.get(name.removesuffix(".safetensors")))
    if path is None:
        run_of(run)
        there = ["newest", *(["best"] if best else []), *sorted(named)]
        raise Refusal(f"{run} has no network {escape(name)}\n  there are: {', '.join(there)}")
    return path


def game_named(path: Path) -> str:
    """Return the game, as the configuration names it, of the network at a path that `find_network` returned; "" if only
    loading the network can tell. Raises Refusal if it is plain that there is no network."""
    in_zoo = zoo_file(path)
    if in_zoo or path.suffix in EXPORTED and not run_above(path):
        return _of_file(in_zoo or path)
    run = run_of(path)
    if path == run and not checkpoint_names.find(run / "checkpoints"):
        raise none_whole(run)
    for file in (run / "config.json", *sorted(starts_folder(run).glob("*.json"))):
        try:
            game = files.read_json(file)["config"]["game"]
            parse(game)
            return game
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: loading it tells how
            continue
    return ""


def none_whole(run: Path) -> Refusal:
    """Return the error that a run has no checkpoint to load."""
    return Refusal(f"{run} holds no whole checkpoint\n  train there first, or name another run")


def _of_file(path):
    """Return the game that the beginning of a safetensors file names; "" if it does not, or for another file. Raises
    Refusal if there is no such file."""
    try:
        with open(files.open_plain(path), "rb") as file:
            size = int.from_bytes(file.read(8), "little") if path.suffix == ".safetensors" else 0
            header = json.loads(file.read(size)) if 0 < size < files.TEXT_BYTES_MAX else {}
        game = json.loads(header["__metadata__"]["config"])["game"]
        parse(game)
        return game
    except OSError as error:
        raise not_exported(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def not_exported(path: Path, why: object) -> Refusal:
    """Return the error that a file is none that `export` wrote."""
    return Refusal(f"{path} is not from `python -m az_mpi export`: {why}")
