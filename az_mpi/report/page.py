"""python -m az_mpi report RUN: one self-contained HTML page of a run, RUN/report.html; also of a run under way."""

import argparse
import json
import time
from html import escape
from pathlib import Path

from az_mpi.files import write_text
from az_mpi.report import chart, run_data
from az_mpi.report.chart import Series
from az_mpi.report.status_text import duration
from az_mpi.report.summary import evaluation_lines, loss_names

NAME = "report.html"
PROG = "python -m az_mpi report"
COLUMNS = (  # of the table of iterations: name in metrics.jsonl, heading, how it is shown
    ("iteration", "iteration", "d"), ("games_num", "games", ",d"), ("positions_num", "positions", ",d"),
    ("mean_length", "mean length", ".1f"), ("first_player_score", "first player scores", ".3f"),
    ("games_per_s", "games/s", ",.1f"), ("simulations_per_s", "simulations/s", ",.0f"), ("steps_num", "steps", ",d"),
    ("play_s", "play s", ".2f"), ("train_s", "train s", ".2f"))  # fmt: skip


def main(arguments):
    """Write the report of the run that `arguments` name and print its path; return the exit status. Raises Refusal."""
    about = "Make RUN/report.html: curves, ranks, configuration and sample games on one page that needs no network."
    parser = argparse.ArgumentParser(prog=PROG, description=about, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder (--logdir of run_dist.py); the run may "
                        "be under way")
    print(write(parser.parse_args(arguments).run))
    return 0


def write(folder):
    """Write RUN/report.html and return its path. Raises Refusal where there is no run."""
    path = Path(folder) / NAME
    write_text(path, render(run_data.load(folder)))
    return path


def render(data):
    """Return the page of a `RunData`."""
    name = escape(data.folder.resolve().name)
    sections = [_head(data, name), _verdict(data), _charts(data), _ranks(data), _games(data), _configuration(data),
                _iterations(data), _attempts(data)]
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{name}: az_mpi</title>\n<style>\n{style}</style></head>\n<body>\n" + "\n".join(sections)
            + f"\n<footer>az_mpi {escape(data.attempts[-1]['az_mpi'])}; made {time.strftime('%Y-%m-%d %H:%M:%S')}"
            "</footer>\n</body></html>\n")


def _head(data, name):
    done, total = _iterations_done(data), data.config["iterations"]
    hosts = data.attempts[-1]["hosts"]
    spent = sum(map(sum, data.phase_seconds().values()))
    last = data.iterations[-1] if data.iterations else {}
    cards = [("Iterations", f"{done} of {total}"),
             ("Games", f"{sum(record['games_num'] for record in data.iterations):,}"),
             ("Positions", f"{sum(record['positions_num'] for record in data.iterations):,}"),
             ("Training steps", f"{last.get('step', 0):,}"), ("Time in the loop", duration(spent)),
             ("Games/second", f"{last['games_per_s']:,.1f}" if "games_per_s" in last else "-")]
    tiles = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in cards)
    places = f"{_plural(len(hosts), 'rank')} on {_plural(len(set(hosts)), 'host')}"
    attempts = _plural(len(data.attempts), "attempt")
    return (f"<header><h1>{name}</h1><p>{escape(data.config['game'])}, {places}, {attempts}; "
            f"{'complete' if done >= total else 'not complete'}</p></header>\n<dl class=\"cards\">{tiles}</dl>")


def _verdict(data):
    if not data.evaluations:
        return "<h2>How well it plays</h2><p>It has not been judged yet.</p>"
    newest = data.evaluations[-1]
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in evaluation_lines(newest))
    return (f"<h2>How well it plays</h2><p>After iteration {newest['iteration']}, with {newest['simulations']} "
            f"simulations a move; in brackets 95 % intervals:</p><ul>{items}</ul>")


def _charts(data):
    steps, x = [r["step"] for r in data.train], [r["iteration"] for r in data.iterations]
    loop_marks, train_marks = data.marks(data.iterations, "iteration"), data.marks(data.train, "step")

    def loop(title, y_label, **names):
        series = [Series(label.replace("_", " "), x, [r.get(key) for r in data.iterations])
                  for label, key in names.items()]
        return chart.lines(title, "iteration", y_label, series, loop_marks)

    losses = [Series(key.replace("_", " "), steps, [r.get(key) for r in data.train]) for key in loss_names(data.train)]
    judged_marks = data.marks(data.evaluations, "iteration")
    idle = [Series(label, x, [100 * share for share in data.idle_shares(kind)])
            for label, kind in (("mean of ranks", "idle"), ("rank that waits most", "idle_max"))]
    figures = [
        chart.lines("Losses", "optimiser step", "loss", losses, train_marks),
        loop("Losses, mean of the iteration", "loss", **{key: key for key in loss_names(data.iterations)}),
        chart.lines("Win rate, with 95 % interval", "iteration", "share of games won", _matches(data, "win_rate"),
                    judged_marks, (0, 1)),
        chart.lines("Elo difference, with 95 % interval", "iteration", "Elo", _matches(data, "elo"), judged_marks),
        _solver(data, judged_marks),
        loop("Game length", "plies", mean_length="mean_length"),
        loop("First player's score", "mean score", first_player="first_player_score"),
        loop("Games a second, while playing", "games/s", all_ranks="games_per_s"),
        chart.stacked("Time by phase", "iteration", "seconds", x, data.phase_seconds(), loop_marks),
        chart.lines("Idle: time in which ranks wait for others", "iteration", "% of the iteration", idle, loop_marks),
    ]
    note = "<p>A dashed line is where an attempt began.</p>" if len(data.attempts) > 1 else ""
    return f'<h2>Curves</h2>{note}<div class="charts">{"".join(figures)}</div>'


def _matches(data, key):
    """Return a Series for each opponent. No Elo is drawn where one side won every game: it is unbounded."""
    series = []
    for opponent in dict.fromkeys(name for record in data.evaluations for name in record["matches"]):
        played = [(r["iteration"], r["matches"][opponent]) for r in data.evaluations if opponent in r["matches"]]
        values = [[match[f"{key}{end}"] for _, match in played] for end in ("", "_low", "_high")]
        series.append(Series(f"against {opponent}", [x for x, _ in played], *values))
    return series


def _solver(data, marks):
    judged = [record for record in data.evaluations if record.get("solver")]
    series = [Series(label, [r["iteration"] for r in judged], [r["solver"].get(key) for r in judged])
              for key, label in (("overall", "all positions"), ("where_moves_differ", "where moves differ"),
                                 ("random_overall", "random mover, all"),
                                 ("random_where_moves_differ", "random mover, where moves differ"))]
    if not judged:
        return ""
    return chart.lines("Moves that keep the exact value", "iteration", "share of positions", series, marks, (0, 1))


def _ranks(data):
    rows = data.ranks()
    games_num = max(sum(row["games_num"] for row in rows), 1)
    head = ("rank", "host", "device", "roles", "games", "positions", "share of games")
    body = [(row["rank"], row["host"], row["device"] or "-", row["roles"] or "-", f"{row['games_num']:,}",
             f"{row['positions_num']:,}", f"{100 * row['games_num'] / games_num:.1f} %") for row in rows]
    return f"<h2>Ranks of attempt {data.attempts[-1]['number']}</h2>" + _table(head, body)


def _games(data):
    from az_mpi.data.segment import SegmentError  # not at the top: HDF5, NumPy and Numba would slow down --help
    from az_mpi.report import samples

    try:
        chosen = samples.choose(data.folder, data.config["game"])
    except (SegmentError, OSError) as error:
        return f"<h2>Sample games</h2><p>None: {escape(str(error))}</p>"
    parts = []
    for sample in chosen:
        boards = "".join(f"<div><pre>{escape(drawing)}</pre><small>{escape(caption)}</small></div>"
                         for caption, drawing in sample.drawings)
        parts.append(f"<section><h3>{escape(sample.title)}</h3><div class=\"boards\">{boards}</div>"
                     f"<p><small>Actions, counted from 0: {' '.join(map(str, sample.actions))}</small></p></section>")
    about = ("Under a board: the plies played and the value that the search found there, for the first player, in "
             "[-1, 1].")
    return f"<h2>Sample games</h2><p>{about if parts else 'None yet.'}</p>{''.join(parts)}"


def _configuration(data):
    from az_mpi.config import KEYS

    rows = [(key, json.dumps(value), "(required)" if KEYS[key].default is ... else json.dumps(KEYS[key].default))
            for key, value in data.config.items()]
    changed = [row for row in rows if row[1] != row[2]]
    head = ("key", "value", "default")
    every = _table(head, rows, marked=[row in changed for row in rows])
    return (f"<h2>Configuration</h2><p>What differs from the defaults:</p>{_table(head, changed)}"
            f"<details><summary>All {len(rows)} keys</summary>{every}</details>")


def _iterations(data):
    body = [[format(record[key], how) if key in record else "-" for key, _, how in COLUMNS]
            for record in data.iterations]
    table = _table([heading for _, heading, _ in COLUMNS], body)
    return (f'<section class="screen"><h2>Iterations</h2><details><summary>All {len(body)} iterations as numbers'
            f"</summary>{table}</details></section>")


def _attempts(data):
    body = [(a["number"], a["started"], len(a["hosts"]), ", ".join(dict.fromkeys(a["hosts"])),
             (a["git_commit"] or "-")[:12], a["az_mpi"], a["python"], a["packages"].get("torch") or "-")
            for a in data.attempts]
    return "<h2>Attempts</h2>" + _table(("attempt", "started", "ranks", "hosts", "commit", "az_mpi", "Python", "torch"),
                                        body)


def _iterations_done(data):
    return data.iterations[-1]["iteration"] if data.iterations else 0


def _plural(number, noun):
    return f"{number} {noun}{'s' * (number != 1)}"


def _table(head, rows, marked=()):
    """Return a table; cells are escaped. marked: which rows stand out."""
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    marks = [*marked, *[False] * (len(rows) - len(marked))]
    body = "".join("<tr" + ' class="marked"' * mark + ">" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>"
                   for row, mark in zip(rows, marks))
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'
