"""python -m az_mpi report RUN: write RUN/report.html, one self-contained page about a run, which may be under way."""

import json
import time
from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

from az_mpi.core.arguments import Parser
from az_mpi.core.printing import counted, seat_name
from az_mpi.core.problems import Refusal, readable, write_file
from az_mpi.core.registry import parse
from az_mpi.report import board, chart, curve, fit_curves, run_data, strength
from az_mpi.report.chart import Series
from az_mpi.telemetry.status_text import duration
from az_mpi.telemetry.summary import loss_names

NAME = "report.html"
PROG = "python -m az_mpi report"
RANKS_SHOWN = 32  # a table of more ranks is closed at first
COLUMNS = (  # of the table of iterations: name in metrics.jsonl, heading, format of the number
    ("iteration", "iteration", "d"),
    ("num_games", "games", ",d"),
    ("num_positions", "positions", ",d"),
    ("mean_length", "mean length", ".1f"),
    ("first_player_score", "first player scores", ".3f"),
    ("mean_result", "mean result", "+.3f"),
    ("ranked_threshold", "ranked by", "+.3f"),
    ("games_per_s", "games/s", ",.1f"),
    ("simulations_per_s", "simulations/s", ",.0f"),
    ("num_steps", "steps", ",d"),
    ("play_s", "play s", ".2f"),
    ("train_s", "train s", ".2f"),
)


def main(arguments: list[str]) -> int:
    """Write the report of the run that `arguments` name, and print its path; return the exit status. Raises Refusal."""
    about = (
        "Make RUN/report.html: curves, ranks, configuration and sample games on one page that loads nothing from\n"
        "elsewhere. The run may be under way."
    )
    parser = Parser(PROG, about, run=True)
    parser.add_argument(
        "--svg",
        action="store_true",
        help=f"also draw RUN/{curve.NAME}: losses, scores of matches, moves that keep the exact value",
    )
    options = parser.parse_args(arguments)
    print(write(options.run))
    if options.svg:
        print(curve.draw(run_data.load(options.run)))
    return 0


def write(folder: str | Path, complete: bool = False) -> Path:
    """Write RUN/report.html and return its path. complete: whether the run has just ended. Raises Refusal if the folder
    holds no run."""
    path = Path(folder) / NAME
    write_file(path, render(run_data.load(folder), complete))
    return path


def render(data: run_data.RunData, complete: bool = False) -> str:
    """Return the page of a `RunData`."""
    name = escape(readable(data.folder.resolve()))
    sections = [
        _head(data, name, complete),
        strength.verdict(data),
        fit_curves.section(data, data.marks(data.fits, "step")),
        _charts(data),
        _ranks(data),
        _games(data),
        _configuration(data),
        _iterations(data),
        _starts(data),
    ]
    return document(name, "\n".join(sections), data.starts[-1]["az_mpi"])


def document(title: str, content: str, version: str) -> str:
    """Return a complete page. title, content: HTML. version: of az_mpi."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}: az_mpi</title>\n<style>\n{style}</style></head>\n<body>\n{content}\n<footer>"
        f"az_mpi {escape(version)}; made {time.strftime('%Y-%m-%d %H:%M:%S')}</footer>\n</body></html>\n"
    )


def _head(data, name, complete):
    hosts = data.starts[-1]["hosts"]
    spent = sum(map(sum, data.phase_seconds().values()))
    last = _last(data)
    done, total = last.get("iteration", 0), data.config["iterations"]
    # `train.hours`, for example, finishes a run before its last iteration. A fit is no run.
    is_over = data.status.get("job") == "finished" and data.status.get("phase") != "fit"
    complete = complete or done >= total or is_over
    cards = [
        ("Iterations", f"{done} of {total}"),
        ("Games", f"{_total(data, 'games'):,}"),
        ("Positions", f"{_total(data, 'positions'):,}"),
        ("Training steps", f"{_num_steps(data):,}"),
        ("Time in the loop", duration(spent)),
        ("Games/second", f"{last['games_per_s']:,.1f}" if "games_per_s" in last else "-"),
    ]
    tiles = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in cards)
    places = f"{counted(len(hosts), 'rank')} on {counted(len(set(hosts)), 'host')}"
    starts = counted(len(data.starts), "start")
    return (
        f"<header><h1>{name}</h1><p>{escape(parse(data.config['game']).short())}, {places}, {starts}; "
        f'{"complete" if complete else "not complete"}</p></header>\n<dl class="cards">{tiles}</dl>'
    )


def _total(data, what):
    """Return how many games or positions the run has stored. Records of older versions only have the number of their
    own iteration."""
    summed = sum(record[f"num_{what}"] for record in data.iterations)
    newest = max((*data.iterations[-1:], *data.fits[-1:]), key=lambda record: record["time"], default={})
    return newest.get(f"num_{what}_stored", summed)


def _num_steps(data):
    """Return the optimiser's steps so far, also of a run that has had a fit alone."""
    return max(_last(data).get("step", 0), *(record["step"] for record in data.fits[-1:]), 0)


def _charts(data):
    x = [record["iteration"] for record in data.iterations]
    loop_marks, train_marks = data.marks(data.iterations, "iteration"), data.marks(data.train, "step")

    def loop(title, y_label, **names):
        series = [
            Series(label.replace("_", " "), x, [r.get(key) for r in data.iterations]) for label, key in names.items()
        ]
        return chart.lines(title, "iteration", y_label, series, loop_marks)

    evaluation_marks = data.marks(data.evaluations, "iteration")
    idle = [
        Series(label, x, [100 * share for share in data.idle_shares(kind)])
        for label, kind in (("mean of ranks", "idle"), ("rank that waits most", "idle_max"))
    ]
    figures = [
        chart.lines(
            "Losses", "optimiser step", "loss", run_data.losses(data.train), train_marks, empty=_no_losses(data)
        ),
        loop("Losses, mean of the iteration", "loss", **{key: key for key in loss_names(data.iterations)}),
        *strength.charts(data, evaluation_marks),
        loop("Game length", "moves", mean_length="mean_length"),
        loop("Mean result in self-play", "value, from -1 to 1", **_results(data))
        if any("mean_result" in record for record in data.iterations)
        else loop("First player's score in self-play", "mean score", first_player="first_player_score"),
        loop("Games a second, while playing", "games/s", all_ranks="games_per_s"),
        chart.stacked("Time by phase", "iteration", "seconds", x, data.phase_seconds(), loop_marks),
        chart.lines("Idle: time in which ranks wait for others", "iteration", "% of the iteration", idle, loop_marks),
    ]
    notes = ["A dashed line shows when a start began."] if len(data.starts) > 1 else []
    if any(None in one.y for one in data.matches("elo")):
        notes.append("Where one side won every game, Elo is infinite and has no point.")
    note = f"<p>{' '.join(notes)}</p>" if notes else ""
    return f'<h2>Curves</h2>{note}<div class="charts">{"".join(figures)}</div>'


def _no_losses(data):
    """Return why there are no losses to show."""
    num_steps = _num_steps(data)
    every = data.config["report.summary_frequency"]
    if not num_steps:
        return "nothing yet"
    return f"none recorded: {counted(num_steps, 'step')} so far, and report.summary_frequency is {every}"


def _ranks(data):
    rows = data.ranks()
    rates = [row["games_per_s"] for row in rows]
    by_host = ""
    head = ["rank", "host", "device", "roles", "games", "positions", "share of games"]
    body = []
    num_games = max(sum(row["num_games"] for row in rows), 1)
    for row in rows:
        body.append(
            [
                row["rank"],
                row["host"],
                row["device"] or "-",
                row["roles"] or "-",
                f"{row['num_games']:,}",
                f"{row['num_positions']:,}",
                f"{100 * row['num_games'] / num_games:.1f} %",
            ]
        )
    if any(rates):
        head, body = [*head, "games/s"], [[*cells, _rate(rate)] for cells, rate in zip(body, rates)]
        by_host = (
            "<p>Games/s: a rank's games divided by the seconds in which it played, without waiting for other "
            f"ranks. A host's is the sum of its ranks.</p>{_hosts(rows)}"
        )
    table = html_table(head, body, bars=rates if any(rates) else ())
    if len(rows) > RANKS_SHOWN:
        table = f"<details><summary>All {len(rows)} ranks</summary>{table}</details>"
    elif by_host:
        table = f"<h3>By rank</h3>{table}"
    return f"<h2>Ranks and hosts of start {data.starts[-1]['number']}</h2>{by_host}{table}"


def _hosts(rows):
    """Return a table of the hosts, from the rows of `RunData.ranks`."""
    head = ("host", "games/s", "ranks", "slowest rank", "fastest rank", "games")
    body = []
    sums = []
    for host in dict.fromkeys(row["host"] for row in rows):
        own = [row for row in rows if row["host"] == host]
        rates = [row["games_per_s"] for row in own if row["games_per_s"] is not None]
        sums.append(sum(rates))
        body.append(
            (
                host,
                _rate(sums[-1] if rates else None),
                len(own),
                _rate(min(rates, default=None)),
                _rate(max(rates, default=None)),
                f"{sum(row['num_games'] for row in own):,}",
            )
        )
    return html_table(head, body, bars=sums)


def _rate(rate):
    return "-" if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


def _games(data):
    from az_mpi.report import samples
    from az_mpi.storage.segment import SegmentError  # here, since HDF5, NumPy and Numba would slow down --help

    try:
        chosen = samples.choose(data.folder, data.config["game"])
    except (SegmentError, OSError, Refusal) as error:
        return f"<h2>Sample games</h2><p>None: {escape(str(error))}</p>"
    if not chosen:
        return "<h2>Sample games</h2><p>None yet.</p>"
    return f"<h2>Sample games</h2>{_about_games(chosen)}{''.join(map(board.game, chosen))}"


def _about_games(chosen):
    """Return whose pieces are which, and what the lists of moves say. chosen: samples."""
    num_players = chosen[0].num_players
    values = {
        1: "from -1, the least, to +1, the most",
        2: "as the first player sees it: +1 is a win, 0 a draw, -1 a loss",
    }.get(num_players, "as its player sees it: +1 is a win, -1 a loss")
    drawn = ", what was drawn for it" * any(position.drawn for one in chosen for position in one.positions)
    player = ", its player" * (num_players > 1)
    about = (
        f"<p>Each move has its number{player}{drawn} and its name, then the value that the search found before it, "
        f"{values}.</p>"
    )
    if num_players == 1:
        return about
    last = chosen[0].positions[-1].board
    discs = [board.disc(player, last.light if last else 1) + f" {seat_name(player)}" for player in range(num_players)]
    return f'<p class="players">{"".join(discs)}</p>{about}'


def _configuration(data):
    from az_mpi.config.load import KEYS, map_names

    config = map_names(data.config, lambda key, name: parse(name).short())
    rows = [
        (key, json.dumps(value), "(required)" if KEYS[key].default is ... else json.dumps(KEYS[key].default))
        for key, value in config.items()
    ]
    changed = [row for row in rows if row[1] != row[2]]
    head = ("key", "value", "default")
    every = html_table(head, rows, marked=[row in changed for row in rows])
    return (
        f"<h2>Configuration</h2><p>What differs from the defaults:</p>{html_table(head, changed)}"
        f"<details><summary>All {len(rows)} keys</summary>{every}</details>"
    )


def _results(data):
    """Return the names of the results of one player in the records of iterations, by what they are called."""
    names = ("mean_result", "ranked_threshold")
    return {name: name for name in names if any(name in record for record in data.iterations)}


def _iterations(data):
    alone = any("mean_result" in record for record in data.iterations)  # a game of one player
    left_out = {"first_player_score" if alone else "mean_result"}
    left_out |= {"ranked_threshold"} - _results(data).keys()
    columns = [row for row in COLUMNS if row[0] not in left_out]
    body = [
        [format(record[key], how) if key in record else "-" for key, _, how in columns] for record in data.iterations
    ]
    table = html_table([heading for _, heading, _ in columns], body)
    return (
        f'<section class="screen"><h2>Iterations</h2><details><summary>{counted(len(body), "iteration")} as numbers'
        f"</summary>{table}</details></section>"
    )


def _starts(data):
    body = [
        (
            a["number"],
            a["started"],
            len(a["hosts"]),
            ", ".join(dict.fromkeys(a["hosts"])),
            (a["git_commit"] or "-")[:12],
            a["az_mpi"],
            a["python"],
            a["packages"].get("torch") or "-",
        )
        for a in data.starts
    ]
    head = ("start", "started", "ranks", "hosts", "commit", "az_mpi", "Python", "torch")
    left_out = "".join(f"<p>Left out: {escape(one)}</p>" for one in data.left_out)
    return "<h2>Starts</h2>" + html_table(head, body) + left_out


def _last(data):
    """Return the record of the newest iteration, {} before the first has ended."""
    return data.iterations[-1] if data.iterations else {}


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], marked: Sequence[bool] = (), bars: Sequence[float | None] = ()
) -> str:
    """Return a table, whose cells are escaped. marked: whether a row stands out, for each row. bars: for each row a
    number, which is drawn as a bar behind it, or None."""
    headings = [*head, ""] if bars else head
    first = "".join(f"<th>{escape(cell)}</th>" for cell in headings)
    body = []
    longest = max((bar or 0 for bar in bars), default=0)
    for row, mark, bar in zip_longest(rows, marked, bars):
        drawn = f'<td class="bar"><i style="width:{100 * bar / longest:.1f}%"></i></td>' if bar else ""
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        body.append(f'<tr class="marked">{cells}{drawn}</tr>' if mark else f"<tr>{cells}{drawn}</tr>")
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
