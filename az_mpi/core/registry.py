"""What can be plugged in, looked up by name: games, engines, searches, opponents, metrics sinks and the like.

A name in a configuration is one of

    connect4                            built in
    openspiel:chess                     built in, for all games of a library
    own_game.py:Rules                   a class in a file of the user's own
    package.module:Rules                a class in an installed module
    own_game.py:Rules(size=5, komi=7)   any of these with arguments: Python literals; nothing is evaluated

A built-in name stands for "package.module:attribute". It is imported when it is first asked for, so that reading a
configuration imports neither NumPy nor torch.
"""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core.earlier_names import modern
from az_mpi.core.own_modules import Source, load
from az_mpi.core.problems import Refusal, escape, reworded

_NAME = re.compile(r"(?:(.*?\.py|[A-Za-z_][\w.]*):)?([A-Za-z_]\w*|\d+)\s*(?:\((.*)\))?", re.DOTALL)
HOW = "package.module:Class or path/file.py:Class"
LIBRARIES = ("openspiel", "zoo")  # what is built in under LIBRARY:NAME takes the name as its first argument


class Name(NamedTuple):
    """A name, taken apart. place: a path that ends in ".py", a dotted module, or "" for what is built in."""

    place: str
    attribute: str
    arguments: dict

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")

    def __str__(self) -> str:
        place = f"{self.place}:" if self.place else ""
        values = ", ".join(f"{key}={value!r}" for key, value in sorted(self.arguments.items()))
        return f"{place}{self.attribute}({values})" if values else f"{place}{self.attribute}"

    def short(self) -> str:
        """Return the name without the folder of its file: what is shown, and what two starts of a run compare."""
        return str(self._replace(place=Path(self.place).name if self.is_file else self.place))


def parse(text: str) -> Name:
    """Return the `Name` that `text` writes. Raises ValueError, which says what is wrong with it."""
    match = _NAME.fullmatch(text.strip())
    place, attribute, arguments = match.groups(default="") if match else ("-", "0", "")
    if attribute.isdigit() and place and place not in LIBRARIES:  # what is built in may have such a name, as 2048
        raise ValueError(f"a class of your own is written {HOW}")
    if place in LIBRARIES:
        place, attribute = "", f"{place}:{attribute}"
    return Name(place, attribute, _arguments(arguments))


def _arguments(text):
    """Return {name: value} of "size=9, komi=7". Raises ValueError."""
    wrong = ValueError(
        f"({text}): arguments are written (key=value, ...), each value a Python literal such as 7, "
        "2.5, 'text', True, None or [1, 2]"
    )
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise wrong
        names = [keyword.arg for keyword in call.keywords]
        if None in names or len(set(names)) < len(names):  # **more, or one twice
            raise wrong
        return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise wrong from None


def sources(names: Iterable[str]) -> dict[str, Source]:
    """Load the users' own files and modules among names; return {place: `Source`}. Raises Refusal."""
    return {place: load(place)[1] for place in (parse(name).place for name in names) if place}


class Registry:
    """The names that one key of the configuration takes.

    key: that key, for messages. base: "package.module:Class", of which a user's own class must be a subclass; None: any
    class. offers: the arguments that the program can pass, separated by blanks; a class is given those that its
    constructor has. built_in: {name: "package.module:attribute"}.
    """

    def __init__(self, key: str, base: str | None, offers: str, built_in: dict[str, str]):
        self.key = key
        self.base = base
        self.offers = offers.split()
        self.built_in = built_in

    @property
    def names(self) -> list[str]:
        """The built-in names, without those of libraries."""
        return [name for name in self.built_in if ":" not in name]

    @property
    def allowed(self) -> str:
        """What the key takes, in words."""
        names = " or ".join(f'"{name}"' for name in self.built_in)
        own = f"a class of your own, {HOW}"
        return f"{names}, or {own}" if names else own

    def problem(self, text: str) -> str | None:
        """Return what is wrong with a name, as far as that is known without importing anything; None: nothing."""
        try:
            name = parse(text)
        except ValueError as error:
            return f"{error}; allowed: {self.allowed}"
        if name.place or self._place(name.attribute):
            return None
        near = get_close_matches(name.attribute.lower(), self.built_in, 1)
        return f"allowed: {self.allowed}" + "".join(f"; did you mean {other}?" for other in near)

    def find(self, text: str) -> Callable[..., Any]:
        """Import the class or function that a name stands for, and return it. Raises Refusal."""
        if problem := self.problem(text):
            raise self._refusal(text, problem)
        name = parse(text)
        if not name.place:
            library, _, member = name.attribute.rpartition(":")
            found = _attribute(self._place(name.attribute))
            return functools.partial(found, member) if library else found
        try:
            module, _ = load(name.place)
        except Refusal as error:
            raise reworded(error, str(self._refusal(text, str(error)))) from error
        found = getattr(module, name.attribute, None)
        base = self.base and _attribute(self.base)
        if isinstance(found, type) and issubclass(found, base or object) and found is not base:
            return found
        own = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type)
            and value is not base
            and issubclass(value, base or object)
            and value.__module__ == module.__name__
        ]
        what = (
            f"is no subclass of {self.base.replace(':', '.')}"
            if found is not None and self.base
            else "is no class there"
        )
        hint = f"; did you mean {' or '.join(own)}?" if own else ""
        raise self._refusal(text, f"{name.attribute} {what}{hint}")

    def _place(self, attribute):
        """Return what a built-in name stands for, "" if there is none of this name."""
        library, _, _ = attribute.rpartition(":")
        return self.built_in.get(f"{library}:NAME" if library else attribute, "")

    def check(self, text: str) -> None:
        """Raise Refusal if a name cannot be imported, or has arguments that it does not take."""
        self._bind(text)

    def takes(self, text: str, offer: str) -> bool:
        """Return whether what a name stands for is given this one of the arguments in `offers`. Raises Refusal."""
        return offer in map(modern, self._bind(text)[2])

    def make(self, text: str, **offered: Any) -> Any:
        """Call the class or function that a name stands for, with the arguments in the name and those of `offered` that
        it takes, and return the result. Raises Refusal."""
        assert offered.keys() == set(self.offers), f"{self.key} is offered {', '.join(offered)}"
        found, arguments, taken = self._bind(text)
        try:
            return found(**arguments, **{key: offered[modern(key)] for key in taken})
        except Refusal as error:
            if isinstance(found, functools.partial):  # it does not know its name in the configuration
                raise self._refusal(text, str(error)) from error
            raise
        except (ValueError, TypeError) as error:
            if not parse(text).place and not arguments:
                raise  # our own mistake
            raise self._refusal(text, f"{type(error).__name__}: {error}") from error

    def _bind(self, text):
        """Return (what a name stands for, the arguments in the name, the names in `offers` that it takes)."""
        found = self.find(text)
        arguments = parse(text).arguments
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        signature = inspect.signature(found).parameters.items()
        parameters = {key: item for key, item in signature if item.kind in kinds}
        own = {key: item for key, item in parameters.items() if modern(key) not in self.offers}
        takes = ", ".join(str(item) for item in own.values()) or "none"
        takes_any = isinstance(found, functools.partial)  # the library itself looks at a game's own arguments
        if not takes_any and (wrong := [key for key in arguments if key not in own]):
            hint = "".join(f"; did you mean {near}?" for near in get_close_matches(wrong[0], own, 1))
            raise self._refusal(text, f"{found.__name__} takes no argument {wrong[0]}{hint}\n  it takes: {takes}")
        missing = [key for key, item in own.items() if item.default is item.empty and key not in arguments]
        if missing:
            raise self._refusal(text, f"{found.__name__} needs {', '.join(missing)}\n  it takes: {takes}")
        return found, arguments, [key for key in parameters if modern(key) in self.offers]

    def _refusal(self, text, why):
        return Refusal(f'{self.key} = "{escape(text)}"\n  {why}')


def _attribute(place):
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


# A new built-in name is a file and a line here.
GAMES = Registry(
    "game",
    "az_mpi.games.base:Game",
    "",
    {
        "chess": "az_mpi.games.chess:Rules",
        "connect4": "az_mpi.games.connect4:Rules",
        "tictactoe": "az_mpi.games.mnk:tictactoe",
        "mnk": "az_mpi.games.mnk:mnk",
        "gomoku": "az_mpi.games.mnk:gomoku",
        "hex": "az_mpi.games.hex:Rules",
        "breakthrough": "az_mpi.games.breakthrough:Rules",
        "go": "az_mpi.games.go:Rules",
        "othello": "az_mpi.games.othello:Rules",
        "2048": "az_mpi.games.twenty48:Rules",
        "morpion": "az_mpi.games.morpion:Rules",
        "backgammon": "az_mpi.games.backgammon:Rules",
        "openspiel:NAME": "az_mpi.games.openspiel:make",
    },
)
ENGINES = Registry(
    "network.engine",
    "az_mpi.network.engines.engine:Engine",
    "network game device threads precision timed",
    {
        "auto": "az_mpi.network.engines:fastest",
        "openvino": "az_mpi.network.engines:with_openvino",
        "torch": "az_mpi.network.engines:with_torch",
    },
)
BLOCKS = Registry(
    "network.block",
    "az_mpi.network.blocks.block:Block",
    "channels blocks index",
    {
        "residual": "az_mpi.network.blocks.residual:Residual",
        "global_pooling": "az_mpi.network.blocks.global_pooling:GlobalPooling",
        "squeeze_excitation": "az_mpi.network.blocks.squeeze_excitation:SqueezeExcitation",
        "bottleneck": "az_mpi.network.blocks.bottleneck:Bottleneck",
    },
)
HEADS = Registry(
    "network.heads",
    "az_mpi.network.heads.head:Head",
    "game channels",
    {
        "policy": "az_mpi.network.heads.policy:Policy",
        "value": "az_mpi.network.heads.value:Value",
        "wdl": "az_mpi.network.heads.wdl:WinDrawLoss",
        "moves_left": "az_mpi.network.heads.moves_left:MovesLeft",
        "opponent_reply": "az_mpi.network.heads.opponent_reply:OpponentReply",
        "ownership": "az_mpi.network.heads.ownership:Ownership",
        "score": "az_mpi.network.heads.score:Score",
        "short_term_value": "az_mpi.network.heads.short_term_value:ShortTermValue",
    },
)
EVALUATORS = Registry(
    "selfplay.evaluator",
    "az_mpi.network.evaluators:Evaluator",
    "game engine seed settings",
    {
        "network": "az_mpi.network.cache:network_evaluator",
        "uniform": "az_mpi.network.evaluators:UniformEvaluator",
        "rollout": "az_mpi.network.evaluators:RolloutEvaluator",
    },
)
OPTIMIZERS = Registry(
    "train.optimizer",
    "torch.optim:Optimizer",
    "params lr weight_decay",
    {
        "adamw": "az_mpi.train.optimizer:AdamW",
        "sgd": "az_mpi.train.optimizer:SGD",
        "muon": "az_mpi.train.optimizer:Muon",
    },
)
SEARCHES = Registry(
    "search.algorithm",
    None,
    "game evaluate settings num_trees noise threads",
    {"puct": "az_mpi.search.puct:Search", "gumbel": "az_mpi.search.gumbel:Search"},
)
OPPONENTS = Registry(
    "evaluate.opponents",
    "az_mpi.evaluate.opponents:Opponent",
    "game seed rank settings search best",
    {
        "best": "az_mpi.evaluate.opponents:best_so_far",
        "greedy": "az_mpi.evaluate.opponents:greedy_moves",
        "gtp": "az_mpi.evaluate.engine_opponents:GtpPlayer",
        "mcts_bot": "az_mpi.evaluate.openspiel_bot:MctsBot",
        "random": "az_mpi.evaluate.opponents:random_moves",
        "rollout": "az_mpi.evaluate.opponents:rollout",
        "uci": "az_mpi.evaluate.engine_opponents:UciPlayer",
        "zoo:NAME": "az_mpi.evaluate.sides:of_zoo",
    },
)
SOLVERS = Registry(
    "evaluate.solver",
    "az_mpi.evaluate.solver:Solver",
    "game",
    {
        "auto": "az_mpi.evaluate.solver:of_game",
        "enumerate": "az_mpi.evaluate.solver:Enumeration",
        "bitbully": "az_mpi.evaluate.solver:BitBully",
        "othello": "az_mpi.evaluate.compiled_solvers:OthelloEndings",
        "hex": "az_mpi.evaluate.compiled_solvers:SmallHex",
    },
)
SINKS = Registry(
    "report.sinks",
    "az_mpi.telemetry.sinks:Sink",
    "folder start",
    {"jsonl": "az_mpi.telemetry.sinks:JsonLines", "tensorboard": "az_mpi.telemetry.sinks:TensorBoard"},
)
CALLBACKS = Registry("callbacks", "az_mpi.telemetry.callbacks:Callback", "folder rank game", {})
