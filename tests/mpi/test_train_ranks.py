"""Ranks that play while others train: their games, the records of them, and refused settings."""

import json
import re
import socket

import h5py
import numpy as np
import pytest
import torch
from marks import slow
from safetensors.torch import load_file

from az_mpi import games as rules
from az_mpi.network import resnet
from az_mpi.network.engines.torch_engine import has_bf16
from az_mpi.storage.run_folder import recorded_config

pytestmark = pytest.mark.mpi

OPTIONS = [
    "--config_file",
    "configs/smoke.json",
    "--set",
    "evaluate.opponents=[]",
    "--set",
    "evaluate.solver_positions=0",
    "--set",
    "report.tensorboard=false",
    "--set",
    "train.replay_ratio=40.0",
]


def iterations(folder, kind="iteration"):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def games(folder):
    """Return {column: values} of the games in all segments, with `segment`, the iteration that took each."""
    parts = []
    for path in sorted((folder / "games").glob("*.h5")):
        with h5py.File(path) as file:
            rows = {name: column[:] for name, column in file["games"].items()}
            parts.append(rows | {"segment": np.full(len(rows["id"]), file.attrs["iteration"])})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def weights_after(folder, iteration):
    """Return the SHA-256 of the run's weights after an iteration; after 0, of those that it began with."""
    config = recorded_config(folder)
    network = resnet.build(rules.make(config.game), config.network, config.seed)
    if iteration:
        network.load_state_dict(load_file(folder / "checkpoints" / f"{iteration:06d}" / "model.safetensors"))
    return resnet.weights_hash(network)


@pytest.mark.parametrize("ranks", [1, slow(2)])
def test_ranks_that_do_not_train_play_while_others_train(mpirun, tmp_path, ranks):
    options = [
        *OPTIONS,
        "--set",
        "iterations=4",
        "--set",
        "checkpoint.keep=4",
        "--set",
        f"train.ranks={ranks}",
        "--logdir",
        tmp_path / "run",
    ]
    done = mpirun(3, "run_dist.py", *options)
    assert done.stdout.count("play, also while others train") == 3 - ranks
    assert done.stdout.count("play, train") == ranks
    records, rows = iterations(tmp_path / "run"), games(tmp_path / "run")
    assert len(np.unique(rows["id"])) == len(rows["id"])
    assert all(record["meanwhile_simulations_per_s"] > 0 for record in records)
    # Trainers play nothing meanwhile, and the games of the others are in the next iteration.
    stale = rows["segment"] - rows["iteration"]
    assert (stale >= 0).all() and (stale > 0).any()
    for record in records:
        mine = rows["segment"] == record["iteration"] - 1
        assert record["num_games"] == mine.sum() >= 16
        assert record["mean_staleness"] == pytest.approx(stale[mine].mean())
        assert np.bincount(rows["rank"][mine], minlength=3).tolist() == record["games_by_rank"]
        # Seconds of self-play: of the last rank also those in which others trained.
        searching_s, whole_s = record["playing_s_by_rank"], record["play_s"] + record["train_s"]
        assert 0 < searching_s[0] <= record["play_s"] + 0.05 and 0.5 * whole_s < searching_s[2] <= whole_s + 0.05
        # Games beyond the quota are not trained on, so that the ratio of what is made and trained stays bounded.
        expected = 40 * record["num_positions"] * min(1, 16 / record["num_games"]) / 32
        assert abs(record["num_steps"] - expected) <= 1
    # A segment names the weights that played in its games: the newest, and those since the oldest game was begun.
    hashes = [weights_after(tmp_path / "run", iteration) for iteration in range(4)]
    for path in (tmp_path / "run" / "games").glob("*.h5"):
        with h5py.File(path) as file:
            begun = file["games/iteration"][:]
            assert file.attrs["weights"].split() == hashes[begun.min() : file.attrs["iteration"] + 1]
    # The mean loss of an iteration is that of its batches, each of which has a summary here; every rank's log has it.
    batches, end = iterations(tmp_path / "run", "train"), 0
    for record in records:
        end += record["num_steps"]
        mine = [batch for batch in batches if end - record["num_steps"] < batch["step"] <= end]
        for name in ("policy_loss", "value_loss"):
            assert record[name] == pytest.approx(np.mean([batch[name] for batch in mine]), rel=1e-9)
            said = f"{name.replace('_', ' ')} {record[name]:.3f}"
            assert f"{record['num_steps']} steps, policy loss" in done.stdout and said in done.stdout
            assert said in (tmp_path / "run" / "logs" / "rank-002.log").read_text()
    state = json.loads((tmp_path / "run" / "checkpoints" / "000004" / "state.json").read_text())
    assert state["num_games"] == len(rows["id"]) and state["phase"] == "play"
    # The run resumes in another mode.
    again = mpirun(2, "run_dist.py", *options, "--set", "iterations=5", "--train_distributed")
    assert again.stdout.count("play, train") == 2 and "resumed after iteration 4" in again.stdout
    assert iterations(tmp_path / "run")[-1]["broadcast_bytes"] == 0  # all have the weights that they trained


def test_no_game_is_older_than_max_staleness_and_the_distribution_is_recorded(mpirun, tmp_path):
    """64 games at once a rank for 16 an iteration: most would take several iterations."""
    options = [*OPTIONS, "--set", "iterations=6", "--set", "train.ranks=1", "--set", "selfplay.parallel_games=64"]
    mpirun(3, "run_dist.py", *options, "--set", "selfplay.max_staleness=1", "--logdir", tmp_path / "run")
    records, rows = iterations(tmp_path / "run"), games(tmp_path / "run")
    stale = rows["segment"] - rows["iteration"]
    assert stale.max() <= 1
    for record in records:
        ages = np.bincount(stale[rows["segment"] == record["iteration"] - 1], minlength=4)
        assert record["num_stale"] == {"1": ages[1], "2": ages[2], "more": ages[3:].sum()}
    assert sum(record.get("num_abandoned", 0) for record in records) > 0


def test_weights_are_sent_to_ranks_that_only_play(program):
    program(3, "broadcast_checks")


@pytest.mark.slow
def test_root_host_means_every_rank_of_roots_host(mpirun, tmp_path):
    done = mpirun(
        2, "run_dist.py", *OPTIONS, "--train_distributed_native", "--set", "iterations=1", "--logdir", tmp_path / "run"
    )
    assert done.stdout.count("play, train") == 2


def test_a_deterministic_quota_is_split_by_weight_and_no_rank_plays_during_training(mpirun, tmp_path):
    weights = json.dumps({"localhost": 3.0})
    options = [*OPTIONS, "--set", "selfplay.deterministic=true", "--set", "iterations=2", "--set", "train.ranks=1"]
    done = mpirun(3, "run_dist.py", *options, "--set", f"selfplay.weights={weights}", "--logdir", tmp_path / "run")
    for record in iterations(tmp_path / "run"):
        assert record["games_by_rank"] == [6, 5, 5] and record["mean_staleness"] == 0
        assert "meanwhile_simulations_per_s" not in record
    wrong = json.dumps({socket.gethostname(): 3.0, "elsewhere": 2})
    done = mpirun(
        3, "run_dist.py", *options, "--set", f"selfplay.weights={wrong}", "--logdir", tmp_path / "new", status=2
    )
    assert done.stderr.count('selfplay.weights: "elsewhere" is none of the hosts of this job') == 1
    assert not (tmp_path / "new").exists()


def test_finished_games_are_exchanged_during_play(mpirun, tmp_path):
    """A shorter time between exchanges makes more of them; compression makes fewer bytes of the same games."""
    counts = {}
    for every_s, compress in ((0.05, True), (0.0, True), (0.0, False)):
        folder = tmp_path / f"{every_s}-{compress}"
        mpirun(
            2,
            "run_dist.py",
            *OPTIONS,
            "--num_games",
            1000,
            "--set",
            "iterations=1",
            "--max_steps",
            1,
            "--set",
            f"exchange.every_s={every_s}",
            "--set",
            f"exchange.compress={json.dumps(compress)}",
            "--logdir",
            folder,
        )
        [record] = iterations(folder)
        rows = games(folder)
        # An exchange that has no games to store, as while kernels are compiled, makes no segment.
        assert 1 + 2 * bool(every_s) <= len(list((folder / "games").glob("*.h5"))) <= record["num_exchanges"]
        assert record["num_games"] == len(rows["id"]) == len(np.unique(rows["id"]))
        counts[every_s, compress] = record
    assert counts[0.0, True]["num_exchanges"] == 1
    by_game = [record["exchange_bytes"] / record["games_by_rank"][1] for record in counts.values()]
    assert by_game[1] < 0.5 * by_game[2]


@pytest.mark.slow
@pytest.mark.usefixtures("without_gpus")
def test_missing_gpus_and_small_batches_are_refused_before_anything_is_written(mpirun, tmp_path):
    refused = mpirun(2, "run_dist.py", *OPTIONS, "--set", "train.ranks=gpu", "--logdir", tmp_path / "run", status=2)
    assert refused.stderr.count("no rank sees a GPU") == 1 and "Traceback" not in refused.stderr
    refused = mpirun(3, "run_dist.py", *OPTIONS, "--batch_size", 2, "--logdir", tmp_path / "run", status=2)
    assert refused.stderr.count("2 samples in all cannot be split over 3 ranks") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("without_gpus")
def test_the_table_names_the_precisions_of_self_play_and_training(mpirun, tmp_path):
    options = [*OPTIONS, "--set", "iterations=1", "--set", "network.engine=torch", "--logdir", tmp_path / "run"]
    done = mpirun(
        2,
        "run_dist.py",
        *options,
        "--set",
        "network.precision=fp32",
        "--mixed_precision",
        "true",
        "--set",
        "train.ranks=1",
    )
    head, *rows = [
        re.split(r"  +", line.strip())
        for line in done.stdout.splitlines()
        if "torch cpu" in line or "training" in line and "roles" in line
    ]
    engine, training = head.index("self-play engine"), head.index("training")
    assert [row[engine].split(" (")[0] for row in rows] == ["torch cpu fp32"] * 2
    assert [row[training] for row in rows] == ["bf16", "-"]
    # The precision may change when the run resumes. bf16 is obeyed, or refused in one block.
    options += ["--set", "iterations=2", "--set", "network.precision=bf16"]
    if has_bf16(torch.device("cpu")):
        assert mpirun(2, "run_dist.py", *options).stdout.count("torch cpu bf16 (as configured)") == 2
    else:
        refused = mpirun(2, "run_dist.py", *options, status=2)
        assert refused.stderr.count('network.precision = "bf16"') == refused.stderr.count("on rank 0, 1 of 2") == 1
        assert "--set network.precision=auto" in refused.stderr and "Traceback" not in refused.stderr
        assert not (tmp_path / "run" / "starts" / "002.json").exists()
