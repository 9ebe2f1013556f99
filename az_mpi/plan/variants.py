"""The configurations that are compared."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from az_mpi.config import command_line
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core.problems import Refusal, escape
from az_mpi.core.registry import GAMES

NAME_MAX = 200  # characters of a run's name that tell what it is


@dataclass(frozen=True)
class Variant:
    """A configuration. label: the configuration as the user wrote it, without its folder. settings: KEY=VALUE, as for
    --set of run_dist.py."""

    label: str
    file: Path
    settings: tuple[str, ...]
    config: Config

    def run_name(self, seed: int) -> str:
        """Return the name of the run's folder. A long one ends in a hash, as file systems take 255 bytes at most."""
        name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", self.label)
        if len(name) > NAME_MAX:
            name = f"{name[:NAME_MAX]}-{hashlib.sha256(self.label.encode()).hexdigest()[:8]}"
        return f"{name}-seed{seed}"


def read(texts: Sequence[str], settings: Sequence[str]) -> list[Variant]:
    """Return the variants that texts such as "configs/a.json train.replay_ratio=3" describe. settings: for all of them.

    Raises Refusal if there are fewer than two, if two are alike, if one of them has a mistake, or if their games
    differ."""
    variants = [read_one(text, settings) for text in texts]
    if len(variants) < 2:
        raise Refusal("one configuration alone cannot be compared: give two or more")
    for k, variant in enumerate(variants):
        if variant.run_name(1) in [other.run_name(1) for other in variants[:k]]:
            raise Refusal(f"{escape(variant.label)} is given twice\n  give each configuration a name of its own")
        game, first = (GAMES.make(one.config.game).name for one in (variant, variants[0]))  # planes may differ
        if game != first:
            raise Refusal(
                f"{escape(variant.label)} is of the game {game}, {escape(variants[0].label)} of {first}: "
                "they cannot play against each other"
            )
    return variants


def read_one(text: str, settings: Sequence[str]) -> Variant:
    """Return the variant that one text describes. settings: before its own. Raises Refusal if it has a mistake."""
    try:
        file, *own = shlex.split(text)
    except ValueError:
        raise Refusal(f"{escape(text)}: a file, and then KEY=VALUE for each change, is needed") from None
    every = (*settings, *own)
    given = command_line.parse(["--config_file", file, *(word for setting in every for word in ("--set", setting))])
    config = configuration.load(given.config_file, given.overrides, given.sources)
    return Variant(" ".join([Path(file).stem, *own]), Path(file), every, config)
