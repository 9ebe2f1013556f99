"""The doctor's checks of made-up facts, its trials of this machine, and its predictions."""

import errno
import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import untrained

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config import schema as models
from az_mpi.core import files
from az_mpi.doctor import checks, diagnosis, facts, folder, job, machine, scratch, trial
from az_mpi.doctor.checks import OK, PROBLEM, WARNING, Check
from az_mpi.storage import lock

ROOT = Path(__file__).parents[2]
MPI = "/opt/mpi/lib/libmpi.so.40"
OPEN_MPI = "mpirun (Open MPI) 5.0.9 Report bugs to https://www.open-mpi.org/community/help/"
GPU = {"name": "H200", "uuid": "a", "memory_bytes": 150 * 2**30}


def rank(host="node1", **changes):
    """Return the facts of a rank on which all is well; a key such as torch__bf16 changes one deep within."""
    made = {
        "host": host,
        "az_mpi": "1.0",
        "sources": "abc",
        "folder": "/az_mpi",
        "python": "3.11.7",
        "libc": "glibc 2.36",
        "executable": "/venv/bin/python",
        "kernel": "6.1",
        "processor": "EPYC",
        "gpu_files": False,
        "mps": False,
        "threads": {},
        "kernels": {"folder": "/az_mpi/numba", "error": None},
        "libraries": {name: {"version": "1.0", "import_s": 1.0} for name in facts.probe.LIBRARIES},
        "mpirun": {"path": "/venv/bin/mpirun", "version": OPEN_MPI},
        "cores": list(range(8)),
        "num_cores": 8,
        "quotas": {},
        "load": 0.1,
        "memory": {"total_bytes": 2**36, "available_bytes": 2**35, "limit_bytes": None},
    }
    made["libraries"]["mpi4py"] |= {
        "vendor": "Open MPI",
        "mpi_version": "5.0.9",
        "standard": "3.1",
        "libraries": [MPI],
        "thread_level": "THREAD_MULTIPLE",
        "ulfm": True,
        "ulfm_on": False,
    }
    made["libraries"]["torch"] |= {"cuda_build": None, "devices": [], "bf16": True}
    made["libraries"]["horovod"] |= {"built": ["mpi"], "libraries": [MPI]}
    for key, value in changes.items():
        *way, last = key.split("__")
        place = made["libraries"] if way and way[0] in made["libraries"] else made
        for name in way:
            place = place[name]
        place[last] = value
    return made


def levels(found):
    return {check.name: check.level for check in found}


def words(found, level):
    return " ".join(f"{check.text} {check.cure}" for check in found if check.level == level)


def test_ranks_where_all_is_well_have_no_warning():
    ranks = [rank(), rank()]
    found = diagnosis.mpi(ranks, None) + diagnosis.launcher(ranks, "mpirun") + diagnosis.libraries(ranks, "horovod")
    found += diagnosis.horovod(ranks, "horovod") + diagnosis.versions(ranks, "auto")[0] + machine.devices(ranks)[0]
    found += machine.cores(ranks) + machine.memory(ranks) + machine.kernels(ranks)
    assert set(levels(found).values()) == {OK}
    assert {
        "mpi",
        "thread_level",
        "ulfm",
        "mpirun",
        "horovod_mpi",
        "versions",
        "devices",
        "cores",
        "memory",
        "kernels",
    } <= set(levels(found))


@pytest.mark.parametrize(
    "ulfm, on, said", [(False, False, "no ULFM"), (True, False, "available but off"), (True, True, "ULFM is on")]
)
def test_the_state_of_ulfm_is_reported_and_is_no_problem(ulfm, on, said):
    [_, _, check] = diagnosis.mpi([rank(mpi4py__ulfm=ulfm, mpi4py__ulfm_on=on)], None)
    assert check.level == OK and said in check.text


@pytest.mark.parametrize("on, level", [(True, WARNING), (False, OK)])
def test_an_open_mpi_that_crashes_at_a_loss_gets_a_warning_if_ulfm_is_on(on, level):
    [_, _, check] = diagnosis.mpi([rank(mpi4py__mpi_version="5.0.11", mpi4py__ulfm_on=on)], None)
    assert check.level == level and ("5.0.11 can itself crash" in check.text) == on


def test_a_low_thread_level_is_a_problem_of_the_ranks_that_have_it():
    found = diagnosis.mpi([rank(), rank(mpi4py__thread_level="THREAD_SERIALIZED")], None)
    said = words(found, PROBLEM)
    assert "rank 1 only THREAD_SERIALIZED" in said and "MPI4PY_RC_THREAD_LEVEL" in said


@pytest.mark.parametrize(
    "vendor, version, said, same",
    [
        ("Open MPI", "5.0.9", OPEN_MPI, True),
        ("Open MPI", "5.0.9", "mpirun (Open MPI) 4.1.4 Report bugs", False),
        ("Open MPI", "5.0.9", "HYDRA build details: Version: 4.2.0 Release Date: ...", False),
        ("MPICH", "4.2.0", "HYDRA build details: Version: 4.2.0 Release Date: ...", True),
        ("MPICH", "4.1.2", "HYDRA build details: Version: 4.2.0 Release Date: ...", False),
        ("MPICH", "4.2.1", "HYDRA build details: Version: 4.2.10 Release Date: ...", False),
        ("MPICH", "4.0.0", "HYDRA build details: Version: 4.0 Release Date: ...", True),
        ("Open MPI", "5.0.0", "mpirun (Open MPI) 5.0 Report bugs", True),
        ("MPICH", "4.2.0", OPEN_MPI, False),
        ("Intel MPI", "2021.10.0", "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619", True),
        ("MVAPICH", "3.0", "HYDRA build details: Version: 3.4.3 Release Date: ...", None),
        ("Open MPI", "5.0.9", "a site's own script", None),
    ],
)
def test_a_launchers_version_shows_whether_it_is_of_this_mpi(vendor, version, said, same):
    assert diagnosis.same_mpi(vendor, version, said) is same


@pytest.mark.parametrize(
    "tool, started_by, level",
    [
        ({"path": "/p/mpirun", "version": OPEN_MPI}, None, OK),
        ({"path": "/p/mpirun", "version": "HYDRA build details: Version: 4.2.0"}, None, PROBLEM),
        ({"path": "/p/mpirun", "version": "HYDRA build details: Version: 4.2.0"}, "mpirun", WARNING),
        ({"path": "/p/mpirun", "version": "mpirun (Open MPI) 4.1.4"}, None, WARNING),
        ({"path": "/p/mpirun", "error": "status 127: libpmix.so.2 is missing"}, None, PROBLEM),
        (None, None, WARNING),
    ],
)
def test_the_level_of_the_mpirun_on_path_depends_on_its_mpi_and_on_who_started_the_job(tool, started_by, level):
    found = diagnosis.launcher([rank(mpirun=tool)], started_by)
    assert levels(found)["mpirun"] == level


def test_a_missing_mpirun_is_not_reported_under_srun():
    assert "mpirun" not in levels(diagnosis.launcher([rank(mpirun=None)], "srun"))


@pytest.mark.parametrize("backend, level", [("horovod", PROBLEM), ("ddp", WARNING), ("auto", WARNING)])
def test_a_missing_horovod_is_a_problem_only_if_the_configuration_asks_for_it(backend, level):
    broken = rank()
    broken["libraries"]["horovod"] = {"error": "ImportError: none here"}
    found = diagnosis.libraries([rank(), broken], backend) + diagnosis.horovod([rank(), broken], backend)
    assert "horovod cannot be imported on rank 1" in words(found, level) and "make setup" in words(found, level)


def test_horovod_of_another_mpi_is_a_problem():
    other = "/usr/lib/libmpi.so.12"
    found = diagnosis.horovod([rank(), rank(horovod__libraries=[MPI, other])], "horovod")
    assert "different MPI libraries on rank 1" in words(found, PROBLEM) and other in words(found, PROBLEM)
    found = diagnosis.horovod([rank(horovod__built=["gloo"])], "horovod")
    assert "built without MPI (it has gloo)" in words(found, PROBLEM)


def test_a_folder_of_compiled_kernels_that_is_full_is_named_with_its_host_and_cure():
    full = rank("node2", kernels__error="No space left on device")
    [check] = machine.kernels([rank(), rank(), full, rank("node2")])
    assert check.level == WARNING and "NUMBA_CACHE_DIR" in check.cure
    assert "/az_mpi/numba on node2: No space left on device" in check.text


def test_missing_openvino_is_no_problem_and_a_slow_import_a_warning():
    slow = rank(torch__import_s=100.0)
    slow["libraries"]["openvino"] = {"error": "ImportError: no"}
    found = diagnosis.libraries([slow], "horovod")
    assert levels(found) == {"libraries": OK, "openvino": OK, "torch_import": WARNING}


def test_differing_versions_are_marked_in_a_table_of_groups():
    ranks = [rank(), rank("node2", torch__version="2.0"), rank()]
    [check], table = diagnosis.versions(ranks, "auto")
    assert check.level == PROBLEM and "torch" in check.text
    assert table[0] == ("", "ranks 0, 2", "rank 1")
    assert [row for row in table if row[0].startswith("!")] == [("! torch", "1.0", "2.0")]
    [check], _ = diagnosis.versions([rank(), rank(processor="Xeon")], "auto")
    assert check.level == WARNING and "processor" in check.text
    [check], _ = diagnosis.versions([rank(), rank(numba__version="0.1")], "auto")
    assert check.level == PROBLEM and "numba" in check.text


@pytest.mark.parametrize(
    "backend, other, level",
    [("auto", None, WARNING), ("ddp", None, WARNING), ("horovod", None, PROBLEM), ("auto", "0.27", PROBLEM)],
)
def test_ranks_may_lack_horovod_where_another_library_would_do(backend, other, level):
    second = rank("node2")
    second["libraries"]["horovod"] = {"version": other} if other else {"error": "ImportError: none here"}
    [check], _ = diagnosis.versions([rank(), second], backend)
    assert check.level == level and "horovod" in check.text


def test_devices_are_in_a_table_and_broken_shared_or_unused_ones_are_reported():
    torch = {"cuda_build": "13.0", "devices": [GPU, GPU | {"uuid": "b"}], "bf16": True, "nccl": "2.29.7"}
    ranks = [rank() for _ in range(3)]
    for local_rank, one in enumerate(ranks):
        one["libraries"]["torch"] = torch | {"device": local_rank % 2}
    ranks[1]["libraries"]["torch"]["device_error"] = "RuntimeError: CUDA error: out of memory"
    found, table = machine.devices(ranks)
    assert "the GPU of rank 1 does not work: RuntimeError: CUDA error" in words(found, PROBLEM)
    assert not words(found, WARNING) and "3 of 3 ranks have a GPU" in words(found, OK)
    assert "share a GPU of node1 without NVIDIA's Multi-Process Service" in words(found, OK)
    assert table[2] == (1, "node1", "2", "cuda:1 H200, 150 GiB, NCCL 2.29.7")
    found, _ = machine.devices([one | {"mps": True} for one in ranks])
    assert "share" not in words(found, OK)
    for name, one in zip("cde", ranks):  # each sees one GPU, which is another one
        one["libraries"]["torch"] = torch | {"device": 0, "devices": [GPU | {"uuid": name}]}
    found, _ = machine.devices(ranks)
    assert not words(found, WARNING) and "share" not in words(found, OK)
    found, _ = machine.devices([rank(gpu_files=True)])
    assert "torch sees no GPU (it is built without CUDA)" in words(found, WARNING)


@pytest.mark.parametrize(
    "cores, num_ranks, said",
    [
        ({"cores": [3]}, 1, "may run on 1 of 8 cores"),
        ({"cores": [0, 1]}, 3, "fewer than ranks"),
        ({"quotas": {"a": 2.5}}, 3, "cgroup quota of 2.5, fewer than ranks"),
        ({"num_cores": 2, "cores": [0, 1], "load": 5.0}, 1, "a load of 5.0 on 2 cores"),
    ],
)
def test_too_few_or_busy_cores_get_a_warning(cores, num_ranks, said):
    found = machine.cores([rank(**cores) for _ in range(num_ranks)])
    assert said in words(found, WARNING)


def test_the_cores_that_ranks_use_within_a_quota_are_reported():
    [check] = machine.cores([rank(quotas={"a": 2.5}), rank(quotas={"a": 2.5})])
    assert check.level == OK and "quota of 2.5: the ranks use 1 + 1" in check.text
    _, table = machine.devices([rank(quotas={"a": 2.5, "b": 100.0}), rank("node2", quotas={"a": 9.0})])
    assert [row[2] for row in table] == ["cores", "2, quota 2.5", "8"]


def test_variables_that_may_keep_threads_off_cores_get_a_warning():
    assert machine.threads([rank(threads={"NUMBA_NUM_THREADS": "64"})]) == []
    assert machine.threads([rank(threads={"NUMBA_NUM_THREADS": "2"})])[0].level == WARNING
    [check] = machine.threads([rank(threads={"OMP_PROC_BIND": "true"}), rank()])
    assert check.level == WARNING and "OMP_PROC_BIND=(not set) or true" in check.text
    assert machine.threads([rank()]) == []


def test_too_little_memory_gets_a_warning_for_its_host():
    memory = {"total_bytes": 2**36, "available_bytes": 2**35, "limit_bytes": 3 * 2**29}
    found = machine.memory([rank(memory=memory), rank(memory=memory), rank("node2")])
    assert "node1" in words(found, WARNING) and "limit of 1.50 GiB, for 2 ranks" in words(found, WARNING)
    assert "node2" in words(found, OK)


def test_memory_limits_of_cgroups_are_the_smallest_on_the_way_up(tmp_path):
    two = {"own": str(tmp_path / "own"), "mount": str(tmp_path / "two")}
    (tmp_path / "own").write_text("0::/job/step\n")
    (tmp_path / "two/job/step").mkdir(parents=True)
    (tmp_path / "two/job/memory.max").write_text("5000\n")
    (tmp_path / "two/job/step/memory.max").write_text("9000\n")
    assert facts.memory_limit(**two) == 5000
    (tmp_path / "two/job/memory.max").write_text("max\n")
    assert facts.memory_limit(**two) == 9000
    one = {"own": str(tmp_path / "own1"), "mount": str(tmp_path / "one")}
    (tmp_path / "own1").write_text("2:memory:/elsewhere/in/a/container\n1:name=systemd:/x\n")
    (tmp_path / "one/memory").mkdir(parents=True)
    (tmp_path / "one/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert facts.memory_limit(**one) is None
    (tmp_path / "one/memory/memory.limit_in_bytes").write_text("7000\n")
    assert facts.memory_limit(**one) == 7000


def test_a_library_that_crashes_the_interpreter_is_named(tmp_path, monkeypatch):
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba/__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = facts.import_libraries(0)
    assert found["numpy"]["version"] == np.__version__
    assert "killed by signal 4" in found["numba"]["error"] and "not tried" in found["torch"]["error"]


def test_folders_made_on_the_way_are_removed_and_others_stay(tmp_path):
    here, made = folder.make(tmp_path / "a" / "b")
    assert Path(here).parent == tmp_path / "a" / "b" and made == [str(tmp_path / "a/b"), str(tmp_path / "a")]
    (tmp_path / "a" / "somebody else's").write_text("")
    with scratch.removed_at_end(here, made):
        assert Path(here).exists()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["somebody else's"]
    with pytest.raises(OSError):
        folder.make(tmp_path / "a" / "somebody else's" / "c")


def test_the_trial_of_a_folder_names_the_error_of_its_file_system(tmp_path):
    folder.write_twice(tmp_path, 0)
    assert (tmp_path / "rank-0").read_text() == "0"
    assert "No such file" in checks.tried(folder.write_twice, Path("/proc"), 0)[1]


def test_a_run_needs_neither_locks_nor_hard_links_of_its_file_system(tmp_path, monkeypatch):
    """A run takes its lock with O_EXCL and a beat (lock.py), and claims files without hard links (files.claim_text)."""

    def not_here(*_, **__):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    for module, name in ((fcntl, "flock"), (fcntl, "lockf"), (os, "link")):
        monkeypatch.setattr(module, name, not_here)
    checks, _ = folder.examine(job.Alone(), tmp_path / "runs")
    assert [check for check in checks if check.level == PROBLEM] == []
    path = tmp_path / "claimed"
    files.claim_text(path, "mine")
    with pytest.raises(FileExistsError):
        files.claim_text(path, "another's")
    held = lock.Lock.take(tmp_path, [lock.me()], 1)
    with pytest.raises(lock.LockHeld):
        lock.Lock.take(tmp_path, [lock.me()], 2)
    held.release()
    assert path.read_text() == "mine"


def test_mounts_are_found_by_the_longest_point(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nnode1:/x /shared nfs4 rw,soft,nolock 0 0\nnone /my\\040disk xfs rw 0 0\n"
    )
    assert folder.mount_of("/shared/runs", mounts) == ["/shared", "nfs4", "rw,soft,nolock"]
    mounts.write_text(f"systemd-1 /shared autofs rw 0 0\n{mounts.read_text()}")  # below it, and therefore before it
    assert folder.mount_of("/shared/runs", mounts) == ["/shared", "nfs4", "rw,soft,nolock"]
    assert folder.mount_of("/sharedness", mounts)[1] == "ext4" and folder.mount_of("/my disk/runs", mounts)[1] == "xfs"
    check = folder._kind(folder.mount_of("/shared/runs", mounts), 2**40)
    assert check.level == WARNING and "soft" in check.text
    assert folder._kind(["/shared", "nfs4", "rw,hard,nolock"], 2**40).level == OK
    assert folder._kind(["/", "ext4", "rw"], 2**20).level == WARNING


def test_waiting_for_a_file_ends_with_a_timeout(monkeypatch):
    monkeypatch.setattr(folder, "SEEN_S", 0.1)
    with pytest.raises(TimeoutError, match="waited"):
        folder.wait_for(lambda: False)
    assert folder.wait_for(lambda: True) < 5


def test_one_rank_alone_tries_the_whole_folder(tmp_path):
    found, figures = folder.examine(job.Alone(), tmp_path / "new" / "runs")
    assert set(levels(found).values()) == {OK} and list(tmp_path.iterdir()) == []
    assert figures["folder"]["write_mb_per_s"] > 0 and figures["folder"]["read_mb_per_s"] > 0


FIGURES = {
    "hosts": ["node1", "node2"],
    "weights": [1.0, 1.0],
    "moves_per_s": [30.0, 60.0],
    "simulations_per_s": [300.0, 600.0],
    "mean_length": 10.0,
    "length_from": "test",
    "step_s": 0.5,
    "trainers": [True, True],
    "peak_bytes": [2**30, 2**30],
}


def settings(**overrides):
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return configuration.validate(
        {"game": "tictactoe"},
        "test",
        {"iterations": 36, "selfplay.num_games": 90, "train.batch_size": 100, "train.replay_ratio": 2.0, **dotted},
    )


def test_predictions_are_those_computed_by_hand():
    # 9 games/s: 10 s of play; 90 games of 10 moves, twice each: 1,800 samples, 18 steps, 9 s.
    said = trial.predict(settings(), FIGURES)
    assert said["games_per_s"] == 9 and said["play_s"] == 10 and said["train_s"] == 9 and said["num_steps"] == 18
    assert said["hours"] == pytest.approx(36 * 19 / 3600)
    # Even shares: two ranks of 3 games/s.
    assert trial.predict(settings(selfplay__deterministic=True), FIGURES)["play_s"] == 15
    # 3 and 6 games/s, in shares of 1 to 4: the second rank takes 72 of 90 games, 12 s.
    uneven = FIGURES | {"weights": [1.0, 4.0]}
    assert trial.predict(settings(selfplay__deterministic=True), uneven)["play_s"] == pytest.approx(12)
    # 18 steps an iteration reach 40 steps in the third.
    assert trial.predict(settings(train__max_steps=40), FIGURES)["iterations"] == 3
    # 100 s are over in the sixth iteration of 19 s.
    assert trial.predict(settings(train__hours=100 / 3600), FIGURES)["iterations"] == 6
    # The rank that does not train plays 54 of the 90 games in the 9 s of training.
    said = trial.predict(settings(), FIGURES | {"trainers": [True, False]})
    assert said["play_s"] == pytest.approx((90 - 54) / 9)
    # In a deterministic run it waits.
    alone = trial.predict(settings(selfplay__deterministic=True), FIGURES | {"trainers": [True, False]})
    assert alone["play_s"] == 15 and alone["hours"] == pytest.approx(36 * 24 / 3600)


def test_a_slow_rank_and_a_host_with_too_little_memory_get_warnings():
    figures = FIGURES | {"moves_per_s": [60.0, 60.0, 20.0], "trainers": [True] * 3, "peak_bytes": [2**33] * 3}
    found, lines, more = trial.examine([rank(), rank(), rank("node2")], settings(), figures, shown=True)
    assert "rank 2 at less than half" in words(found, WARNING) and "assumed" in lines[0]
    assert levels(found)["hours"] == OK and more["prediction"]["games_per_s"] == 14
    tight = rank(memory={"total_bytes": 2**36, "available_bytes": 2**33, "limit_bytes": None})
    found, _, _ = trial.examine([tight, tight, rank("node2")], settings(), figures, shown=False)
    assert "node1: 16.0 GiB with a full window, of 8.0 GiB" in words(found, WARNING)
    assert set(levels(found)) == {"start", "run_memory"}


@pytest.mark.long
@pytest.mark.parametrize("name", games.NAMES)
def test_random_samples_are_positions_of_the_game(name):
    game = games.make(name)
    samples, mean_length = trial.random_samples(game, untrained(game=game).heads, np.random.default_rng(1))
    rows, legal = samples.rows, game.legal(samples.rows["state"])
    assert not game.terminal(rows["state"])[0].any() and len(rows) == round(mean_length * trial.RANDOM_GAMES)
    num = legal.sum(axis=1)
    assert (samples.policy["action"] == np.nonzero(legal)[1]).all() and (rows["policy_count"] == num).all()
    assert np.allclose(np.add.reduceat(samples.policy["probability"], np.cumsum(num)[:-1]), 1)
    assert 5 <= mean_length <= game.max_plies
    first = rows["state"][: trial.RANDOM_GAMES]
    assert (game.to_play(first) == 0).all() and (game.num_outcomes or (first == game.initial(1)).all())


def test_random_samples_have_three_values_for_a_network_with_wdl():
    game, settings = games.make("tictactoe"), models.Network(blocks=1, channels=8, heads=("policy", "wdl"))
    rows = trial.random_samples(game, untrained(settings=settings, game=game).heads, np.random.default_rng(1))[0].rows
    assert rows["value"].shape[1:] == (3,)


def test_ranks_and_errors_are_put_in_words():
    assert checks.ranks_in_words([3]) == "rank 3" and checks.ranks_in_words([5, 0, 1, 2]) == "ranks 0-2, 5"
    assert checks.tried(lambda: 3) == (3, None)
    assert checks.tried(open, "/nowhere/x")[1] == "No such file or directory: /nowhere/x"
    assert checks.tried(int, "x")[1].startswith("ValueError: invalid literal")


def test_reports_show_cures_and_give_one_verdict(capsys):
    report = checks.Report(shown=True, as_json=False)
    report.add("First", [Check("a", OK, "fine", "not shown"), Check("b", PROBLEM, "broken", "fix it")], ["as it is"])
    report.finish()
    said = capsys.readouterr().out
    assert "First\n  ok       fine\n  problem  broken\n           cure: fix it\n  as it is\n\n" in said
    assert said.endswith("0 warnings, 1 problem: a run would not start here\n") and not report.would_start
    report = checks.Report(shown=True, as_json=True)
    report.add("Second", [Check("c", WARNING, "slow")], rate=3)
    report.finish()
    made = json.loads(capsys.readouterr().out)
    assert made["would_start"] and made["num_warnings"] == 1 and made["rate"] == 3
    assert made["checks"] == [{"section": "Second", "name": "c", "level": "warning", "text": "slow", "cure": ""}]
