"""python -m az_mpi export: the network as an ONNX or TorchScript file, in other programs and back in this one."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import make_config, make_run, positions, trained

from az_mpi import __main__, __version__, games
from az_mpi.config.schema import Evaluate
from az_mpi.core.problems import Refusal
from az_mpi.export import export_command, standalone_page
from az_mpi.games.base import described_planes
from az_mpi.network import graph, onnx_file
from az_mpi.player import trained_network
from az_mpi.player.loaded_player import load_player

NETWORK = {"blocks": 2, "channels": 16}


def found(game, heads=("policy", "value"), iteration=7):
    """Return a network with random weights as if it were of a run."""
    config = make_config(game, network=NETWORK | {"heads": list(heads)}, search={"simulations": 30, "c_puct": 1.5})
    game = games.make(config.game)
    return trained_network.TrainedNetwork(config, game, trained(3, config.network, game).eval(), iteration)


def in_onnxruntime(path, planes):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, {"planes": planes})))


def in_openvino(path, planes):
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", hint)
    return {output.any_name: value for output, value in model({"planes": planes}).items()}


@pytest.mark.parametrize("program", [in_onnxruntime, in_openvino])
@pytest.mark.parametrize(
    "game, heads",
    [
        ("connect4", ("policy", "value")),
        ("tictactoe", ("policy", "wdl")),
        ("2048", ("policy", "value")),  # whose value is between what a plane shows and 1
        ("breakthrough", ("policy", "wdl")),  # its policy is made cell by cell, its value from pooled cells
        ("go(size=13,komi=7)", ("policy", "value", "examples/own_head.py:MovesLeft")),
        (
            "othello(size=6)",
            ("policy", "value", "moves_left", "opponent_reply", "short_term_value", "ownership", "score"),
        ),
    ],
)
def test_other_programs_compute_the_outputs_of_an_onnx_file(tmp_path, program, game, heads):
    network, path = found(game, heads), tmp_path / "network.onnx"
    path.write_bytes(export_command.onnx(network))
    for batch in (1, 4, 64):
        planes = network.game.planes(positions(batch, network.game)).astype(np.float32)
        with torch.inference_mode():
            ours = network.network(torch.from_numpy(planes))
        theirs = program(path, planes)
        assert list(theirs) == list(ours) and ours["policy"].std() > 0.01
        for name in ours:
            assert theirs[name].shape == ours[name].shape and theirs[name].dtype == np.float32
            assert np.abs(theirs[name] - ours[name].numpy()).max() <= 1e-4


def test_an_onnx_file_describes_its_network():
    _, about = onnx_file.read(export_command.onnx(found("othello(size=6)", ("policy", "wdl"))))
    assert (about["az_mpi"], about["game"], about["iteration"]) == (__version__, "othello(size=6)", "7")
    assert json.loads(about["planes"]) == ["stones of the player to move", "stones of the other player"]
    assert json.loads(about["planes_rows"]).startswith("row 0 is the top row of the board, which is 1 in text")
    assert json.loads(about["planes_shape"]) == [2, 6, 6] and json.loads(about["heads"]) == ["policy", "value"]
    first, second = json.loads(about["actions"])
    assert (about["players"], about["outcomes"]) == ("2", "0")
    assert first == second and (first[0], first[7], first[36]) == ("a1", "b2", "pass")
    config = json.loads(about["config"])
    assert config["search"]["c_puct"] == 1.5 and config["network"]["heads"] == ["policy", "wdl"]
    assert "train" not in config
    first, second = found("hex(size=3)")._names_of_actions()  # each as the player sees it
    assert first[:3] == ["a1", "b1", "c1"] and second[:3] == ["a1", "a2", "a3"]
    assert found("go(size=19,komi=7)")._names_of_actions()[0][:1] == ["A19"]


def test_an_onnx_file_searches_as_the_matches_and_finds_users_files_beside_it(tmp_path):
    """The files may be at another place than where the run found them."""
    for place in ("run", "elsewhere"):
        (tmp_path / place).mkdir()
        shutil.copy("examples/own_head.py", tmp_path / place)
    network = found("tictactoe", ("policy", "value", f"{tmp_path}/run/own_head.py:MovesLeft"))
    network = network._replace(config=network.config.model_copy(update={"evaluate": Evaluate(simulations=70)}))
    (tmp_path / "elsewhere" / "network.onnx").write_bytes(export_command.onnx(network))
    shutil.rmtree(tmp_path / "run")
    config = trained_network.read(tmp_path / "elsewhere" / "network.onnx").config
    assert config.network.heads[2] == f"{tmp_path}/elsewhere/own_head.py:MovesLeft"
    assert config.search.simulations == 70
    assert standalone_page.pack(network, *graph.operations(network.network))["settings"]["simulations"] == 70


@pytest.mark.parametrize("heads", [("policy", "value"), ("policy", "wdl")])
def test_an_onnx_file_plays_as_the_run_does(tmp_path, heads):
    network, path = found("connect4", heads), tmp_path / "network.onnx"
    path.write_bytes(export_command.onnx(network))
    read = trained_network.read(path)
    assert read.iteration == 7 and read.game.name == "connect4" and read.config.search == network.config.search
    theirs, ours = read.network.state_dict(), network.network.state_dict()
    assert list(theirs) == list(ours) and all(theirs[name].equal(ours[name]) for name in ours)
    player = load_player(path, engine="torch", precision="fp32")
    result = player.search(player.game.initial(1)[0])
    assert result.policy.sum() == pytest.approx(1) and result.move in "1234567"


def test_torchscript_has_the_same_outputs_at_every_batch():
    network = found("connect4", ("policy", "wdl"))
    extra = {"about.json": ""}
    module = torch.jit.load(io.BytesIO(export_command.torchscript(network)), _extra_files=extra)
    about = json.loads(extra["about.json"])
    texts, rows = described_planes(network.game)
    assert (about["game"], json.loads(about["planes"]), json.loads(about["planes_rows"])) == ("connect4", texts, rows)
    said = standalone_page.pack(network, *graph.operations(found("connect4").network))["about"]
    assert (said["planes"], said["planes_rows"]) == (texts, rows)
    for batch in (1, 4, 64):
        planes = torch.from_numpy(network.game.planes(positions(batch, network.game))).float()
        with torch.inference_mode():
            theirs, ours = module(planes), network.network(planes)
        assert theirs.keys() == ours.keys()
        assert all((theirs[name] - ours[name]).abs().max() <= 1e-5 for name in ours)


def test_export_writes_a_file_and_refuses_to_overwrite_one(tmp_path, capsys):
    run, path = make_run(tmp_path / "run", checkpoints=(1, 2), best=(1,)), tmp_path / "ttt.onnx"
    assert __main__.main(["export", str(run), "--to", "onnx", str(path)]) == 0
    assert "tictactoe, iteration 2" in capsys.readouterr().out
    before = path.read_bytes()
    assert __main__.main(["export", str(run), str(path), "--to", "torchscript"]) == 2 and path.read_bytes() == before
    assert "--overwrite" in capsys.readouterr().err
    command = ["export", str(run), str(path), "--to", "onnx", "--overwrite", "--checkpoint", "000001"]
    assert __main__.main(command) == 0 and trained_network.read(path).iteration == 1
    for wrong in (
        ["--to", "pdf", "x"],
        ["--to", "onnx"],
        ["x"],
        ["--to", "onnx", str(tmp_path / "none" / "x")],
        ["--to", "onnx", "x", "--checkpoint", "000009"],
    ):
        assert __main__.main(["export", str(run), *wrong]) == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run", "ttt.onnx"]


def test_an_onnx_file_that_az_mpi_did_not_write_is_refused(tmp_path):
    whole, path = export_command.onnx(found("tictactoe")), tmp_path / "x.onnx"
    tensors, about = onnx_file.read(whole)
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    wrongs = [
        b"",
        b"no",
        whole[:5000],
        whole[:-20],
        bytes(1000),
        onnx_file.write([], {}, (1, 1, 1), {"az_mpi": "1"}),
        onnx_file.write([], {}, (1, 1, 1), about),
        onnx_file.write([], {}, (1, 1, 1), about | {"config": '{"game": "chequers"}'}),
    ]
    for wrong in wrongs:
        path.write_bytes(wrong)
        with pytest.raises(Refusal):
            load_player(path)
    with pytest.raises(Refusal, match="cannot be read|is not from"):
        load_player(tmp_path / "none.onnx")


class Own(torch.nn.Module):
    """A head that does what a function of it and its input says, with layers by name."""

    def __init__(self, compute, layers):
        super().__init__()
        self.compute = compute
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.compute(self, x)


class Network(torch.nn.Module):
    def __init__(self, compute, **layers):
        super().__init__()
        self.own = Own(compute, layers)

    def forward(self, x):
        return {"policy": self.own(x)}


@pytest.mark.parametrize(
    "says, forward, layers",
    [
        ("cumsum in own is not among", lambda own, x: x.cumsum(1), {}),
        ("BatchNorm2d in own.norm is not among", lambda own, x: own.norm(x), {"norm": torch.nn.BatchNorm2d(2)}),
        ("own.scale is a tensor", lambda own, x: x * own.scale, {"scale": torch.nn.Parameter(torch.ones(1))}),
        ("mul in own is used in another way .*constant", lambda own, x: 2 * x, {}),
        (r"flatten in own is used in another way .*x.flatten\(1\)", lambda own, x: x.flatten(), {}),
        (r"flatten in own is used in another way .*x.flatten\(1\)", lambda own, x: x.flatten(2), {}),
        ("add in own is used in another way", lambda own, x: torch.add(x, x, alpha=2), {}),
        (
            "Conv2d in own.conv is used in another way",
            lambda own, x: own.conv(x),
            {"conv": torch.nn.Conv2d(2, 2, 1, groups=2)},
        ),
        (
            r"test_export_files.py, line \d+ \(.*\): what is computed depends on values",
            lambda own, x: x if x.sum() > 0 else x + x,
            {},
        ),
    ],
)
def test_an_operation_that_cannot_be_written_is_named_with_its_place(says, forward, layers):
    with pytest.raises(ValueError, match=says):
        graph.operations(Network(forward, **layers))


def test_the_page_of_networks_lists_the_operations_that_can_be_exported():
    page = Path("docs/play.md").read_text().replace("`", "")
    assert graph.allowed() in " ".join(page.split())  # the page breaks the line


def test_a_network_with_an_operation_that_cannot_be_written_is_refused():
    network = found("tictactoe")
    network.network.heads["policy"].forward = lambda x: x.cumsum(1)
    with pytest.raises(Refusal, match="torchscript"):
        export_command.onnx(network)


def test_only_operations_that_an_output_needs_are_kept():
    network = found("connect4", ("policy", "value", "examples/own_head.py:MovesLeft"))
    made, outputs = graph.operations(network.network)
    assert set(outputs) == {"policy", "value", "moves_left"}
    kept = graph.needed(made, {outputs["policy"], outputs["value"]})
    assert 0 < len(kept) < len(made) and not any("moves_left" in name for one in kept for name in one.tensors)
