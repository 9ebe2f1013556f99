"""Random trials for hours: their results as JSON lines, a summary by fault, and one row each in docs/fault_trials.csv.

python tests/faults/long.py --hours 8 --results results.jsonl
"""

import argparse
import csv
import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import catalogue
import trial
from trial import ROOT

TABLE = ROOT / "docs" / "fault_trials.csv"
CONFIDENCE = 0.95


def upper_bound(broken, trials, confidence=CONFIDENCE):
    """Return the one-sided Clopper-Pearson bound of the probability of a broken trial; 3 / n, nearly, where none is."""
    if broken >= trials:
        return 1.0
    low, high = broken / trials, 1.0
    for _ in range(60):
        p = (low + high) / 2
        at_most = sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(broken + 1))
        low, high = (p, high) if at_most > 1 - confidence else (low, p)
    return high


def percentile(values, share):
    """Return the smallest of the values that at least this share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def summary(results):
    """Return rows (fault, trials, broken, upper bound, median and 99 % point of going_on_s, 99 % point of left_s), all
    of them first. A point of nothing is None.

    Trials whose fault never happened, since the run was over before, are left out."""
    hit = [result for result in results if result["injected"]]
    groups = {"all of these": hit} if hit else {}
    for fault in catalogue.FAULTS:
        if found := [result for result in hit if result["fault"] == fault]:
            groups[fault] = found
    rows = []
    for name, found in groups.items():
        broken = sum(bool(result["broken"]) for result in found)
        rows.append(
            (
                name,
                len(found),
                broken,
                upper_bound(broken, len(found)),
                point(found, "going_on_s", 0.5),
                point(found, "going_on_s", 0.99),
                point(found, "left_s", 0.99),
            )
        )
    return rows


def point(results, key, share):
    values = [result[key] for result in results if key in result]
    return percentile(values, share) if values else None


def append(rows, date, commit, table=TABLE):
    """Append the rows of a summary to docs/fault_trials.csv: the bound in percent, seconds with two decimals."""
    with open(table, "a", newline="") as file:
        for name, trials, broken, bound, *times in rows:
            seconds = ["" if value is None else f"{value:.2f}" for value in times]
            csv.writer(file, lineterminator="\n").writerow(
                [date, commit, name, trials, broken, f"{100 * bound:.2g}", *seconds]
            )


def commit():
    """Return the short hash of the sources, with a + where they were changed since."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="python tests/faults/long.py",
        allow_abbrev=False,
        description="Run random trials and append their counts to docs/fault_trials.csv.",
    )
    parser.add_argument("--hours", type=float, required=True, help="no trial is begun after so long")
    parser.add_argument(
        "--faults",
        nargs="+",
        choices=catalogue.FAULTS,
        metavar="FAULT",
        default=catalogue.FAULTS,
        help="only seeds of these, by their names in catalogue.py (default: all)",
    )
    parser.add_argument(
        "--first",
        type=int,
        metavar="SEED",
        help="seed of the first trial, the others follow it (default: a random one)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("faults.jsonl"),
        metavar="FILE",
        help="one JSON object a trial is appended here (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if given.first is None else given.first
    append([], None, None)  # to fail now, and not after hours
    results, what, end = [], commit(), time.monotonic() + 3600 * given.hours
    with open(given.results, "a") as file:
        while time.monotonic() < end:
            if catalogue.make(seed).fault in given.faults:
                results.append(trial.try_seed(seed))
                file.write(json.dumps(results[-1]) + "\n")
                file.flush()
                say(results)
            seed += 1
    rows = summary(results)
    append(rows, time.strftime("%Y-%m-%d"), what)
    print("\n".join(map(str, rows)))
    return 1 if any(result["broken"] for result in results) else 0


def say(results):
    newest, broken = results[-1], sum(bool(result["broken"]) for result in results)
    where = f"{newest['fault']}, {newest['phase']}, ranks {newest['victims'] or ''}"
    print(
        f"{len(results)} trials, {broken} broken; seed {newest['seed']}: {where}: status {newest['status']}, "
        f"{newest['seconds']:.0f} s" + ("" if newest["injected"] else ", over before the fault"),
        flush=True,
    )
    for text in newest["broken"]:
        print(f"  BROKEN {text}\n  {newest['replay']}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
