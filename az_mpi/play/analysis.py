"""The analysis of a position as Leela Zero and KataGo report it to GTP programs, such as Lizzie and Sabaki."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from az_mpi.games.vertices import Vertices
    from az_mpi.player.session import Session

INTERVAL_S, INTERVAL_MIN_S = 1.0, 0.01
MOVES_MAX = 1000
# Keywords of KataGo, each with one word after it, that ask for what is not reported here. They are ignored.
IGNORED = (
    "ownership",
    "ownershipStdev",
    "movesOwnership",
    "movesOwnershipStdev",
    "noResultValue",
    "rootInfo",
    "pvVisits",
    "pvEdgeVisits",
    "minmoves",
)
# Names of KataGo for rules that count by area, as Go does here; the others count by territory.
BY_AREA = ("tromp-taylor", "chinese", "chinese-ogs", "chinese-kgs", "aga", "bga", "french", "new-zealand", "goe")


class Asked(NamedTuple):
    """What an analysis command asks for.

    player: whose turn to analyse, 0 or 1; None: the player's who is to move. interval_s: seconds between two reports.
    moves_max: how many moves a report has at most. allow, avoid: (player, vertex) of the only moves to look at, or of
    those to leave out; () for none."""

    player: int | None
    interval_s: float
    moves_max: int
    allow: tuple[tuple[int, str], ...] = ()
    avoid: tuple[tuple[int, str], ...] = ()


def read(words: Sequence[str], players: Mapping[str, int]) -> Asked | None:
    """Return what the arguments `[player] [interval] [key value]...` ask for; None if they have another form. Their
    intervals are in hundredths of a second. players: {name in lower case: player}."""
    left = list(words)
    player = interval = None
    moves_max = MOVES_MAX
    if left and left[0].lower() in players:
        player = players[left.pop(0).lower()]
    if left and _is_whole(left[0]):
        interval = int(left.pop(0))
    limits = _limits(left, players)
    if limits is None or len(left) % 2:
        return None
    for key, value in zip(left[::2], left[1::2]):
        if key not in ("interval", "maxmoves", *IGNORED) or key not in IGNORED and not _is_whole(value):
            return None
        interval = int(value) if key == "interval" else interval
        moves_max = int(value) if key == "maxmoves" else moves_max
    interval_s = INTERVAL_S if interval is None else max(interval / 100, INTERVAL_MIN_S)
    return Asked(player, interval_s, moves_max, *limits)


def _limits(words, players):
    """Take `allow PLAYER VERTEX,... DEPTH` and `avoid ...` out of the words; return both, or None if one has another
    form. A move of the position itself is meant, whatever the depth."""
    found: dict[str, tuple[tuple[int, str], ...]] = {"allow": (), "avoid": ()}
    for key in ("allow", "avoid"):
        while key in words:
            at = words.index(key)
            given = words[at + 1 : at + 4]
            if len(given) < 3 or given[0].lower() not in players or not _is_whole(given[2]):
                return None
            found[key] += tuple((players[given[0].lower()], word) for word in given[1].split(","))
            del words[at : at + 4]
    return found["allow"], found["avoid"]


def _is_whole(text):
    return text.isascii() and text.isdecimal() and len(text) < 10


def counts_by_area(rules: object) -> bool:
    """Return whether rules of KataGo, a name or an object of JSON, count by area."""
    if not isinstance(rules, dict):
        return str(rules).lower() in BY_AREA
    return not rules or str(rules.get("scoring", rules.get("scoringRule", "AREA"))).upper() == "AREA"


def in_leela_zero(session: "Session", vertices: "Vertices", asked: Asked) -> str:
    """Return a line of lz-analyze: rates in hundredths of a percent, for the player to move."""
    return " ".join(
        f"info move {vertices.of(session.state, move.action)} visits {move.visits} "
        f"winrate {round(_rate(move) * 10_000)} prior {round(move.prior * 10_000)} order {order} "
        f"pv {' '.join(vertices.line(session.state, move.variation))}"
        for order, move in enumerate(_shown(session, asked))
    )


def in_katago(session: "Session", vertices: "Vertices", asked: Asked) -> str:
    """Return a line of kata-analyze: rates from 0 to 1, for the player to move."""
    return " ".join(
        f"info move {vertices.of(session.state, move.action)} visits {move.visits} "
        f"utility {2 * _rate(move) - 1:.6f} winrate {_rate(move):.6f} prior {move.prior:.6f} order {order} "
        f"pv {' '.join(vertices.line(session.state, move.variation))}"
        for order, move in enumerate(_shown(session, asked))
    )


def _shown(session, asked):
    return [move for move in session.moves() if move.visits][: asked.moves_max]


def _rate(move):
    """Return the rate of wins in [0, 1], where a draw is half a win."""
    return (move.value + 1) / 2
