"""A simulated cluster: an iteration on thousands of ranks, from what `python -m az_mpi scaling` measured on few.

    python benchmarks/scaling.py --ranks 1,2,4,8,16 --kinds weak --batch_s 0.06 --sample_s 0.006 --logdir runs/waiting
    python benchmarks/simulated_cluster.py runs/waiting --known 4   # check: predict the larger sizes of the folder
    python benchmarks/simulated_cluster.py runs/waiting --ranks 64,1024,4096

Play is simulated from one sum of the control channel to the next: every rank advances its games by the steps that fit
in between, a game ends after a drawn number of steps, and a rank holds back beyond its share of the games that are
missing, as in selfplay/quota.py. The other phases are sums of what messages and each rank cost.

With a core for each rank, a phase takes what it takes on one rank, a tree of messages (`--message_s` each), and what
the code does for every rank of the world, which is timed here with the code itself: JSON of `World.collect`, packing in
`World.exchange`, root's heartbeats and status, and a writer's segments. `busy` are shares of the time of root, or of
the busiest writer; at 1 it cannot keep up.
With fewer cores (as in the check) ranks queue: in play by mean value analysis (Reiser, Lavenberg 1980; several cores
as Seidmann et al. 1987), elsewhere all ranks work at the same time.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from common import machine, spread
from segments import PROVENANCE, random_games

from az_mpi import games
from az_mpi.core import files
from az_mpi.liveness import heartbeat
from az_mpi.mpi import messages
from az_mpi.plan import scaling, scaling_figures, scaling_model
from az_mpi.run import writers
from az_mpi.storage import segment
from az_mpi.telemetry import status_text

SPREAD = 0.35  # of a game's steps: standard deviation / mean, of Connect Four between equal players about this
DRAWN = 256  # ranks whose play is simulated at least, in several iterations if there are fewer
COLLECTS, EXCHANGES = 4, 4  # of World in an iteration; in each exchange of games, which collects once more
PHASES = ("exchange", "broadcast", "write", "rest")


class Rank(NamedTuple):
    """One rank with a core of its own, as measured on one rank. Seconds are of an iteration if nothing else is said.

    step_s: of one step of self-play, of which step_cpu_s are of the processor. game_steps: mean of a game. games: of
    each rank. slots: games at once. train_s: all its samples, of which train_cpu_s of the processor. others: {phase of
    PHASES: seconds}."""

    step_s: float
    step_cpu_s: float
    game_steps: float
    games: float
    slots: int
    train_s: float
    train_cpu_s: float
    num_steps: int
    others: dict[str, float]


class Costs(NamedTuple):
    """Seconds of the code itself, timed here: of an item of `collect`; of a part of `exchange`; at root, of a beat, of
    a rank's row in the status, of unpacking a game and storing it in a segment. game_bytes: of a game on disk."""

    item_s: float
    part_s: float
    beat_s: float
    row_s: float
    game_s: float
    game_bytes: float


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of `scaling`, with weak scaling from one rank on")
    parser.add_argument("--ranks", default="64,1024,4096", help="sizes to predict, a core for each rank")
    parser.add_argument("--known", type=int, help="check: know the sizes up to this one, predict the others")
    parser.add_argument("--message_s", type=float, default=5e-6, help="seconds of a message between two ranks")
    parser.add_argument("--jitter", type=float, default=0.02, help="standard deviation / mean of a step's seconds")
    parser.add_argument("--sum_steps", type=float, default=2, help="steps of self-play from one sum to the next")
    parser.add_argument("--game", default="connect4", help="the game whose segments are timed")
    parser.add_argument("--ranks_per_writer", type=int, default=64, help="storage.ranks_per_writer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    given = parser.parse_args()
    state = files.read_json(given.folder / scaling.STATE)
    sizes = {one.num_ranks: one for one in scaling_figures.sizes(state["cases"], "weak", 1)}
    rng = np.random.default_rng(given.seed)
    rank = calibrated(measured(state, sizes[1]), given, rng)
    if given.known:
        tell("check", given, checked(state, sizes, rank, given, rng))
    else:
        costs = timed(given.game)
        found = {n: own_cores(rank, costs, n, given, rng) for n in map(int, given.ranks.split(","))}
        alone_s = own_cores(rank, costs, 1, given, rng)["iteration_s"]
        tell("own cores", given, {n: {"efficiency": alone_s / row["iteration_s"]} | row for n, row in found.items()})


def measured(state, one):
    """Return the `Rank` that one rank of a scaling was. one: its `Size`."""
    rows = [row for name, case in state["cases"].items() if name.split("-")[1] == "1" for row in case["iterations"][1:]]
    slots = state["configuration"]["selfplay"]["parallel_games"]
    simulations = sum(row["simulations_per_s"] * row["play_s"] for row in rows)
    play_s, num_games = (sum(row[name] for row in rows) for name in ("play_s", "num_games"))
    step_s = slots * play_s / simulations  # one simulation of each game
    others = {name: one.terms[name] for name in PHASES}
    train_s = one.terms["training"] + one.terms["sums"]
    cpu_s = one.used["processor_load"] * one.iteration_s.value
    # Phases besides play and training wait for nobody on one rank; those two share the rest by their seconds.
    share = max(0.0, cpu_s - sum(others.values())) / (one.terms["play"] + train_s)
    steps = sum(row["num_steps"] for row in rows) / len(rows)
    return Rank(
        step_s=step_s,
        step_cpu_s=step_s * share,
        game_steps=simulations / num_games,
        games=num_games / len(rows),
        slots=slots,
        train_s=train_s,
        train_cpu_s=train_s * share,
        num_steps=max(1, round(steps)),
        others=others,
    )


def calibrated(rank, given, rng):
    """Return the rank with a step as long that the simulation of one rank takes as long as that rank did.

    What `measured` calls a step also has the time in which the rank held games back."""
    took = rank.games * rank.game_steps / rank.slots * rank.step_s
    simulated, _ = mean_play(rank, 1, rank.step_s, given, rng)
    return rank._replace(step_s=rank.step_s * took / simulated, step_cpu_s=rank.step_cpu_s * took / simulated)


def play(rank, num_ranks, step_s, given, rng):
    """Return (seconds until all ranks have stopped, mean seconds that a rank was held back) of one iteration's play.

    Games are under way when it begins, as one iteration leaves them to the next."""

    def drawn(shape):
        return np.maximum(1.0, rng.gamma(1 / SPREAD**2, rank.game_steps * SPREAD**2, shape))

    left = drawn((num_ranks, rank.slots)) * rng.random((num_ranks, rank.slots))  # steps of each game
    quota = round(rank.games * num_ranks)
    finished = np.zeros(num_ranks, np.int64)
    allowed = np.zeros(num_ranks, np.int64)
    now, total, held = 0.0, 0, 0.0
    while True:
        told = finished.copy()
        steps_s = step_s * np.maximum(0.1, 1 + given.jitter * rng.standard_normal(num_ranks))
        # Every rank joins a sum at the end of a step, and sees its result at the end of a later one.
        took = given.sum_steps * float(steps_s.max()) + hops_seconds(num_ranks, given)
        left -= (took / steps_s)[:, None]
        ended = left <= 0
        free = np.maximum(allowed - finished, 0)
        order = np.cumsum(ended, axis=1)
        counted = ended & (order <= free[:, None])
        finished += counted.sum(axis=1)
        held += took * float((ended & ~counted).sum()) / left.size
        left[counted] = drawn(int(counted.sum()))
        left[ended & ~counted] = 0.0  # these wait for the next sum
        now += took
        if total >= quota:
            return now, held
        total = int(told.sum())
        allowed = told + max((quota - total) // (2 * num_ranks), 1)


def mean_play(rank, num_ranks, step_s, given, rng):
    """Return the means of what `play` returns over several iterations."""
    drawn = [play(rank, num_ranks, step_s, given, rng) for _ in range(-(-DRAWN // num_ranks))]
    return tuple(float(mean) for mean in np.mean(drawn, axis=0))


def hops_seconds(num_ranks, given):
    """Return the seconds of a message up a tree of ranks and down again."""
    return 2 * math.ceil(math.log2(max(num_ranks, 2))) * given.message_s


def queued(wait_s, cpu_s, num_ranks, cores):
    """Return the mean seconds of a cycle of `num_ranks` ranks on `cores` cores, each of which waits, then computes."""
    fast, length = cpu_s / cores, 0.0
    for n in range(1, num_ranks + 1):
        response = fast * (1 + length)
        cycle = wait_s + cpu_s * (cores - 1) / cores + response
        length = n / cycle * response
    return cycle


def own_cores(rank, costs, num_ranks, given, rng):
    """Return the figures of an iteration on ranks with a core each."""
    hops = hops_seconds(num_ranks, given)
    play_s, held_s = mean_play(rank, num_ranks, rank.step_s, given, rng)
    step_s = rank.train_s / rank.num_steps
    slowest = given.jitter * math.sqrt(2 * math.log(max(num_ranks, 2)))  # expected maximum of normal numbers
    collect_s = hops + num_ranks * costs.item_s
    parts_s = EXCHANGES * num_ranks * costs.part_s + (EXCHANGES + 1) * hops + collect_s
    figures = {
        "play_s": play_s,
        "held_back_s": held_s,
        "exchange_s": rank.others["exchange"] + parts_s,
        "train_s": rank.num_steps * (step_s * (1 + slowest) + 2 * hops),
        "broadcast_s": rank.others["broadcast"] + hops,
        "write_s": rank.others["write"],
        "rest_s": rank.others["rest"] + COLLECTS * collect_s,
    }
    whole = sum(seconds for name, seconds in figures.items() if name != "held_back_s")
    busy = {
        "beats_busy": num_ranks * costs.beat_s / heartbeat.EVERY_S,
        "status_busy": num_ranks * costs.row_s / 2.0,  # status.WRITE_EVERY_S
        "segments_busy": ranks_of_writer(num_ranks, given) * rank.games * costs.game_s / whole,
        "games_per_s": num_ranks * rank.games / whole,
        "games_per_s_of_writer": 1 / costs.game_s,
        "written_mb_per_s": num_ranks * rank.games * costs.game_bytes / whole / 1e6,
        "packing_share": EXCHANGES * num_ranks * costs.part_s / whole,
        "collect_share": (COLLECTS + 1) * num_ranks * costs.item_s / whole,
    }
    return {"iteration_s": whole} | figures | busy


def ranks_of_writer(num_ranks, given):
    """Return how many ranks' games the busiest writer, which is the last one, unpacks and writes."""
    return num_ranks - writers.ranks_that_write(num_ranks, given.ranks_per_writer)[-1]


def checked(state, sizes, rank, given, rng):
    """Return {size: measured and predicted seconds of an iteration} on the cores of the machine that measured them."""
    known = [n for n in sizes if n <= given.known]
    cores = max(sizes[n].cores for n in sizes)
    sums = {n: sizes[n].terms["sums"] for n in known}
    found = {}
    for n, one in sizes.items():
        step_s = queued(rank.step_s - rank.step_cpu_s, rank.step_cpu_s, n, cores)
        alone_s = queued(rank.step_s - rank.step_cpu_s, rank.step_cpu_s, 1, cores)
        play_s, _ = mean_play(rank, n, rank.step_s * step_s / alone_s, given, rng)
        crowd = max(1.0, n / cores)
        train_s = rank.train_s + rank.train_cpu_s * (crowd - 1) + growth(sums, n)
        others_s = {name: growth({k: sizes[k].terms[name] for k in known}, n) for name in PHASES}
        predicted = play_s + train_s + sum(others_s.values())
        found[n] = {
            "measured_s": one.iteration_s.value,
            "predicted_s": predicted,
            "predicted_by_measured": predicted / one.iteration_s.value,
            "known": n in known,
            "play_s": play_s,
            "measured_play_s": one.terms["play"] + one.terms["tail"],
            "train_s": train_s,
            "measured_train_s": one.terms["training"] + one.terms["sums"],
            "others_s": sum(others_s.values()),
            "measured_others_s": sum(one.terms[name] for name in PHASES),
        }
    return found


def growth(known, num_ranks):
    """Return the seconds of a phase on `num_ranks` ranks by the fit a + b log2 N + c N of the sizes that are known."""
    seconds = [max(value, 1e-6) for value in known.values()]
    return float(scaling_model.fit(list(known), seconds) @ scaling_model.basis(num_ranks))


def timed(name):
    """Return the `Costs` of the code on this machine. name: of the game that is stored, played by random moves."""
    item = json.dumps({f"phase_{k}": 0.123456789 for k in range(6)} | {"row": [12345, 678, 90.5, 1] * 3}).encode()
    content = {"state": "Active"} | dict.fromkeys(("games", "played_s", "staleness", "bytes"), 12345.678)
    beat = {"rank": 7, "count": 1, "urgent": False, "last": False, "route": 0, "content": content}
    datagram = heartbeat.pack("token", beat)
    rows = np.zeros(1000, "V60")
    destination = np.arange(1000)
    game = games.make(name)
    record = random_games(game, 500)
    store_s, num_bytes = segment_costs(game, record)
    return Costs(
        item_s=least(lambda: json.loads(item)),
        part_s=least(lambda: [messages.pack(rows[destination == k], True) for k in range(1000)], 3) / 1000,
        beat_s=least(lambda: heartbeat.pack("token", {"heard": heartbeat.unpack("token", datagram)["count"]})),
        row_s=row_seconds(),
        game_s=(store_s + unpack_seconds(record)) / len(record.games),
        game_bytes=num_bytes / len(record.games),
    )


def row_seconds():
    """Return the seconds of a rank's row in status.json and status.txt."""
    row = {"rank": 1, "host": "node0001", "device": "cpu", "roles": "play, train", "state": "Active"}
    row |= {"num_games": 1234, "games_per_s": 1.25, "last_seen_s": 0.4}
    names = ("run", "game", "start", "job", "written", "phase", "elapsed_s", "iteration", "iterations", "num_games")
    values: dict[str, Any] = dict.fromkeys(
        [*names, "num_positions", "step", "time_left_s", "progress", "model_sync_s"], 1
    )
    values |= {"network_mb_per_min": 1.0, "staleness": 0.1, "failures": [], "games_per_s": 1.0, "workers_active": 1000}
    values |= {"num_workers": 1000, "ranks": [row] * 1000, "iterations": 10, "job": "stopped"}
    return least(lambda: (json.dumps(values), status_text.render(values)), 3) / 1000


def segment_costs(game, record):
    """Return (the seconds in which a writer stores a record as a segment, the bytes of that)."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = least(lambda: segment.write(Path(folder), 0, game, record, PROVENANCE), 3)
        return seconds, segment.paths(folder)[0][1].stat().st_size


def unpack_seconds(record):
    """Return the seconds in which a writer unpacks a record that another rank sent."""
    arrays = (record.games, record.positions, record.policy)
    packed = [messages.pack(rows, True) for rows in arrays]
    return least(lambda: [messages.unpack([part], rows, True) for part, rows in zip(packed, arrays)], 10)


def least(call, times=200):
    """Return the least processor seconds of a call: what else runs here does not count."""
    seconds = []
    for _ in range(times):
        begun = time.thread_time()
        call()
        seconds.append(time.thread_time() - begun)
    return min(seconds)


def tell(what, given, rows):
    if given.json:
        found = {n: {name: spread([float(value)]) for name, value in row.items()} for n, row in rows.items()}
        print(json.dumps({"benchmark": f"simulated cluster, {what}", "machine": machine(), "ranks": found}))
        return
    names = list(next(iter(rows.values())))
    print(f"simulated cluster, {what}: {given.folder}")
    print(f"  {'ranks':<24}", *(f"{n:>10}" for n in rows))
    for name in names:
        print(f"  {name:<24}", *(f"{float(values[name]):>10.4g}" for values in rows.values()))


if __name__ == "__main__":
    main()
