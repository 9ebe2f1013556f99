"""python -m az_mpi export RUN --to FORMAT FILE: write the network of a run as one file, for other programs."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE
from az_mpi.core.problems import Refusal, write_file
from az_mpi.play.options import add_checkpoint
from az_mpi.player.network_paths import find_network

if TYPE_CHECKING:
    from az_mpi.network.resnet import ResNet
    from az_mpi.player.trained_network import TrainedNetwork

PROG = "python -m az_mpi export"
ZOO_BYTES_MAX = 5_000_000
ABOUT = """\
Write the network of a run as one file:
  onnx         for onnxruntime, OpenVINO and other programs; az_mpi.load_player plays it too
  torchscript  for programs with torch, also in C++
  zoo          a safetensors file that says how it was trained and how strong it is, as in az_mpi/zoo
  web          one HTML page that plays by itself in any browser, without a server or a network connection
"""


def main(arguments: list[str]) -> int:
    """Write the file that `arguments` name, and print its size; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, run=True)
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    parser.add_argument("--to", required=True, choices=WRITERS, metavar="FORMAT", help=", ".join(WRITERS))
    add_checkpoint(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it is there")
    given = parser.parse_args(arguments)
    if given.file.exists() and not (given.overwrite and given.file.is_file()):
        raise Refusal(f"{given.file} is there already\n  name another file, or replace it with --overwrite")
    from az_mpi.player import trained_network

    found = trained_network.read(find_network(given.run, given.checkpoint))
    content = WRITERS[given.to](found)
    write_file(given.file, content)
    print(f"{given.file}: {found.game.name}, iteration {found.iteration}, {len(content):,} bytes")
    return DONE


def onnx(found: "TrainedNetwork") -> bytes:
    """Return a network as the content of an ONNX file. Its input is "planes", float32 [batch, C, H, W]; each head is an
    output of the head's name. Raises Refusal if a head has an operation that `network.graph` does not know."""
    import torch

    from az_mpi.network import graph, onnx_file

    made, outputs = graph_of(found.network)
    with torch.inference_mode():
        example = found.network(torch.zeros(1, *found.game.planes_shape))
    shapes = {name: (outputs[name], list(example[name].shape[1:])) for name in outputs}
    return onnx_file.write(graph.needed(made, set(outputs.values())), shapes, found.game.planes_shape, found.about())


def graph_of(network: "ResNet") -> tuple[list, dict[str, str]]:
    """Return `graph.operations` of a network. Raises Refusal."""
    from az_mpi.network import graph

    try:
        return graph.operations(network)
    except Exception as error:  # a user's own head may compute anything
        raise Refusal(
            f"the network cannot be written as plain operations: {error}\n"
            "  try --to torchscript, which takes all operations of torch; docs/play.md lists those of the other formats"
        ) from error


def torchscript(found: "TrainedNetwork") -> bytes:
    """Return a network as TorchScript: planes float32 [batch, C, H, W] -> {head: output}. Its extra file about.json has
    what an ONNX file has as metadata."""
    import io

    import torch

    stream = io.BytesIO()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its successor, torch.export, is not for C++
        example = torch.zeros(2, *found.game.planes_shape)
        traced = torch.jit.trace(found.network.requires_grad_(False), example, strict=False, check_trace=False)
        torch.jit.save(traced, stream, _extra_files={"about.json": json.dumps(found.about(), indent=1)})
    return stream.getvalue()


def web(found: "TrainedNetwork") -> bytes:
    """Return a network as an HTML page. Raises Refusal if there are no rules of the game in JavaScript, or the network
    has an operation that `network.graph` does not know."""
    from az_mpi.export import standalone_page
    from az_mpi.network.engines.engine import played

    standalone_page.spec(found.game)
    return standalone_page.page(found, *graph_of(played(found.network))).encode()


def zoo(found: "TrainedNetwork") -> bytes:
    """Return a network as a safetensors file with a description of the network and of its training. It has what the
    other formats have, and `commit`, `hours` (of each rank), `ranks` and `evaluation` (the record of the newest one in
    metrics.jsonl). Raises Refusal."""
    from az_mpi.report import run_data
    from az_mpi.storage import checkpoint

    if found.run is None:
        raise Refusal(
            "a file of the zoo says how its network was trained, which only the folder of a run tells\n"
            "  name a run's folder"
        )
    data = run_data.load(found.run)
    fit_s = sum(record.get("fit_s", 0.0) for record in data.fits)
    hours = (sum(map(sum, data.phase_seconds().values())) + fit_s) / 3600
    start = data.starts[-1]
    evaluation = data.evaluations[-1] if data.evaluations else {}
    rows = {
        "commit": start["git_commit"],
        "hours": round(hours, 4),
        "ranks": len(start["hosts"]),
        "evaluation": {name: value for name, value in evaluation.items() if not name.endswith("_s")},
    }
    about = found.about() | {name: json.dumps(row) for name, row in rows.items()}
    content = checkpoint.to_bytes(found.network.state_dict(), about)
    if len(content) > ZOO_BYTES_MAX:
        raise Refusal(f"the network takes {len(content):,} bytes; files of the zoo take up to {ZOO_BYTES_MAX:,}")
    return content


WRITERS: dict[str, Callable[["TrainedNetwork"], bytes]] = {
    "onnx": onnx,
    "torchscript": torchscript,
    "web": web,
    "zoo": zoo,
}
