"""The options of `python -m az_mpi uci`: what the engine offers, and the values that a client has set."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from az_mpi.player.levels import ELO_FULL, ELO_LEAST

OVERHEAD_MS = 50  # the default of what is left unused, for the time that messages take
HASH_MB = 512


class Option(NamedTuple):
    """An option. kind: spin, check, string, combo or button, as UCI has it. default: of a spin a number, of a check
    whether it is on. least, most: of a spin."""

    kind: str
    default: int | bool | str = 0
    least: int = 0
    most: int = 0


# Those of SyzygyPath and Ponder change nothing: clients with settings for many engines stop if they are missing.
OPTIONS = {
    "Simulations": Option("spin", 0, 0, 1_000_000),
    "Threads": Option("spin", 1, 1, 1024),
    "Hash": Option("spin", HASH_MB, 16, 1_048_576),
    "Clear Hash": Option("button"),
    "MultiPV": Option("spin", 1, 1, 500),
    "Ponder": Option("check", False),
    "Move Overhead": Option("spin", OVERHEAD_MS, 0, 10_000),
    "SyzygyPath": Option("string", ""),
    "UCI_Variant": Option("combo", ""),
    "UCI_ShowWDL": Option("check", False),
    "UCI_AnalyseMode": Option("check", False),
    "UCI_LimitStrength": Option("check", False),
    "UCI_Elo": Option("spin", ELO_FULL, ELO_LEAST, ELO_FULL),
}
CHESS960 = {"UCI_Chess960": Option("check", False)}


class Options:
    """The options with their values, {name: value}. defaults: where they differ from the table. also: more of them."""

    def __init__(self, defaults: Mapping[str, int | bool | str], also: Mapping[str, Option]):
        self._options = {
            name: option._replace(default=defaults.get(name, option.default))
            for name, option in (OPTIONS | dict(also)).items()
        }
        self.values: dict[str, Any] = {name: option.default for name, option in self._options.items()}

    def lines(self, variant: str) -> Iterator[str]:
        """Yield the lines that offer the options. variant: the only value of UCI_Variant."""
        for name, option in self._options.items():
            text = f"option name {name} type {option.kind}"
            if option.kind == "spin":
                text += f" default {option.default} min {option.least} max {option.most}"
            elif option.kind == "check":
                text += f" default {str(option.default).lower()}"
            elif option.kind == "string":
                text += f" default {option.default or '<empty>'}"
            elif option.kind == "combo":
                text += f" default {variant} var {variant}"
            yield text

    def set(self, name: str, value: str) -> str | None:
        """Set an option, whose name may be in any case, to the value that a text means, and return its name; None if
        there is no such option, or it does not take the value."""
        [known] = [known for known in self._options if known.lower() == name.lower()] or [None]
        if known is None:
            return None
        option = self._options[known]
        taken: Any = value
        if option.kind == "spin":
            if not re.fullmatch(r"-?\d{1,9}", value, re.ASCII) or not option.least <= int(value) <= option.most:
                return None
            taken = int(value)
        elif option.kind == "check":
            if value.lower() not in ("true", "false"):
                return None
            taken = value.lower() == "true"
        self.values[known] = taken
        return known
