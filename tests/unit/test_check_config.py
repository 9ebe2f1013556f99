"""--check_config: what a start would refuse is refused there too, by the functions of the start, without MPI."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi import modes
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core.problems import Refusal
from az_mpi.network import engines

ROOT = Path(__file__).parents[2]
SMALL = {
    "game": "tictactoe",
    "network": {"blocks": 1, "channels": 8},
    "search": {"simulations": 4},
    "evaluate": {"opponents": ["random"]},
}


def config(**changes):
    """Return a small configuration with other values of dotted keys, written with two underscores."""
    return configuration.validate(SMALL, "test", {key.replace("__", "."): value for key, value in changes.items()})


def test_a_configuration_that_a_start_takes_has_no_remark():
    assert modes.check(config()) == []
    assert modes.check(config(selfplay__deterministic=True, selfplay__weights={"node9": 2.0})) == []


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"game": "openspiel:stones_and_gems"}, "stones_and_gems cannot be played"),
        ({"game": "mnk(rows=3)"}, "takes no argument rows"),
        ({"network__heads": ["policy"]}, "network.heads"),
        ({"network__heads": ["policy", "value", "ownership"]}, "does not say who owns its cells"),
        ({"network__block": "residual(depth=3)"}, "takes no argument depth"),
        ({"network__engine": "torch", "network__precision": "int8"}, "only OpenVINO on a processor has it"),
        ({"search__algorithm": "no.such.module:Search"}, "search.algorithm"),
        ({"selfplay__evaluator": "math:sqrt"}, "selfplay.evaluator"),
        ({"selfplay__weights": {"node1": 2.0}}, "count only with selfplay.deterministic"),
        ({"train__optimizer": "torch.optim:LBFGS"}, "train.optimizer"),
        ({"train__optimizer": "sgd(momentun=0.9)"}, "did you mean momentum?"),
        ({"evaluate__solver": "bitbully"}, "solves Connect Four"),
        ({"evaluate__opponents": ["mcts_bot"]}, "plays games of OpenSpiel"),
        ({"evaluate__opponents": ["zoo:hex7"]}, "hex7"),
        ({"report__sinks": ["no.such.module:Sink"]}, "report.sinks"),
        ({"callbacks": ["json:JSONDecoder"]}, "callbacks"),
    ],
)
def test_the_check_refuses_what_a_start_would_refuse(changes, said):
    with pytest.raises(Refusal) as caught:
        modes.check(config(**changes))
    assert said in str(caught.value) and caught.value.status == 2
    assert "rank 0 of 1" not in str(caught.value), "there is no job, and so no rank"


def test_hardware_that_this_host_lacks_is_a_remark_and_the_other_keys_are_checked(monkeypatch):
    monkeypatch.setattr(engines, "has_bf16", lambda device: False)
    [remark] = modes.check(config(network__precision="bf16"))
    assert 'network.precision = "bf16"' in remark
    with pytest.raises(Refusal, match="solves Connect Four"):
        modes.check(config(network__precision="bf16", evaluate__solver="bitbully"))


def test_an_opponents_program_that_this_host_lacks_is_a_remark():
    [remark] = modes.check(config(game="connect4", evaluate__opponents=["gtp(command='/no/such/program')"]))
    assert "/no/such/program" in remark


def test_callbacks_are_loaded_but_not_made(tmp_path):
    """The constructor of a callback may begin something that belongs to a run."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from az_mpi.telemetry.callbacks import Callback\n\n\nclass Mine(Callback):\n"
        "    def __init__(self):\n        raise SystemExit('made')\n"
    )
    assert modes.check(config(callbacks=[f"{file}:Mine"])) == []
    with pytest.raises(Refusal, match="Other is no class there|Other is no subclass"):
        modes.check(config(callbacks=[f"{file}:Other"]))


def run(*words):
    """Run run_dist.py --check_config and return the finished process."""
    return subprocess.run(
        [sys.executable, ROOT / "run_dist.py", *words, "--check_config"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.process
def test_the_command_prints_the_configuration_or_one_block():
    done = run("--config_file", "configs/smoke.json")
    assert done.returncode == 0 and Config(**json.loads(done.stdout)).game == "tictactoe"
    done = run("--config_file", "configs/smoke.json", "--set", "game=openspiel:stones_and_gems")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('game = "openspiel:stones_and_gems"\n  stones_and_gems cannot be played')
