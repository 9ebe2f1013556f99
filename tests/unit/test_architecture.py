"""Dependencies point down (DESIGN, principle 2), modules stay small, and reading a configuration loads nothing big."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "az_mpi").rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}

# What a package or module may import of az_mpi. Parts of a package may always import each other. `az_mpi` alone is the
# version.
MAY_IMPORT = {
    "hashing": set(),
    "permuting": set(),
    "games": {"hashing"},
    "search": {"hashing"},
    "network": {"hashing", "permuting", "watchdog"},
    "files": set(),
    "problems": {"files"},
    "fencing": {"files", "watchdog"},
    "lock": {"files", "problems"},
    "selfplay": {"search", "watchdog"},
    "data": {"selfplay.record", "files", "permuting", "problems", "watchdog"},
    "report": {"config", "data", "fencing", "files", "games", "problems", "watchdog"},
    "checkpoint": {"files", "problems"},
    "settings": {"games"},
    "config": {"problems", "settings"},
    "peers": set(),
    "pending": {"peers"},
    "messages": set(),
    "watchdog": set(),
    "waiting": set(),
    "world": {"messages", "peers", "pending", "problems", "waiting", "watchdog"},
    "signals": set(),
    "pulse": {"world"},
    "partner": {"checkpoint", "peers", "watchdog", "world"},
    "placement": {"problems"},
    "root_host": {"problems"},
    "run_folder": {"", "config", "files", "lock", "problems"},
    "command_line": {"", "config", "problems"},
    "train": {"network", "peers", "problems", "watchdog", "world"},
    "evaluate": {"network", "search", "watchdog", "world"},
    "kernels": {"", "config", "data", "files", "games", "network", "search"},
    "run": {"games", "checkpoint", "data", "lock", "network", "partner", "placement", "problems", "pulse", "report",
            "run_folder", "search", "selfplay", "signals", "train"},
    "exchange": {"", "data", "files", "network", "selfplay"},
    "bad_steps": {"checkpoint", "data", "files", "network", "problems", "train"},
    "resume": {"bad_steps", "checkpoint", "data", "exchange", "network", "run_folder", "signals"},
    "judge": {"checkpoint", "data", "evaluate", "files", "network", "report", "resume", "watchdog"},
    "recovery": {"checkpoint", "data", "exchange", "files", "lock", "network", "partner", "peers",
                 "placement", "problems", "pulse", "report", "resume", "run", "run_folder", "selfplay", "signals",
                 "train", "watchdog"},
    "loop": {"bad_steps", "exchange", "judge", "peers", "problems", "pulse", "recovery", "report", "resume",
             "selfplay"},
    "launch": {"", "command_line", "config", "files", "lock", "problems", "report", "root_host", "run_folder",
               "signals", "watchdog"},
    "doctor": {"", "command_line", "config", "data", "files", "games", "kernels", "placement", "problems", "report",
               "root_host", "run", "run_folder", "selfplay", "world"},
    "__main__": {"files", "problems"},
    "verify": {"", "checkpoint", "data", "files", "games", "lock", "problems", "run_folder"},
    "modes": {"checkpoint", "data", "exchange", "judge", "kernels", "lock", "loop", "placement", "problems", "report",
              "resume", "run", "run_folder", "selfplay", "signals", "watchdog"},
}
# Libraries that belong to few modules; elsewhere they are not imported.
BELONGS = {
    "mpi4py": {"world", "peers", "doctor.probe"},
    "horovod": {"train.horovod_backend", "doctor.probe"},
    "openvino": {"network.openvino_engine"},
    "onnxruntime": set(),
    "tensorrt": set(),
    "h5py": {"data.segment"},
    "matplotlib": {"report.curve"},
    "tqdm": {"report.console"},
    "pydantic": {"config", "problems", "settings"},
    "bitbully": {"evaluate.solver"},
    "safetensors": {"bad_steps", "checkpoint", "judge"},
}
WITHOUT_TORCH = ("games", "search", "selfplay", "data", "evaluate", "config", "files", "run_folder", "world", "loop")


def imports(path):
    """Return the dotted names that a file imports, anywhere in it: "a.b" for `import a.b` and for `from a import b`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_imports(path):
    """Return the modules of az_mpi that a file imports, without "az_mpi."; "" for the package itself."""
    found = set()
    for name in imports(path):
        if name.split(".")[0] == "az_mpi":
            while name not in MODULES:
                name = name.rpartition(".")[0]
            found.add(name.removeprefix("az_mpi").removeprefix("."))
    return found


def within(module, allowed):
    """Whether a dotted module is one of `allowed` or part of one."""
    return any(module == name or (name and module.startswith(f"{name}.")) for name in allowed)


NAMES = [name.removeprefix("az_mpi.") for name in MODULES if name != "az_mpi"]


def test_imports_are_found_as_they_are_written(tmp_path):
    """Of this test's own reading: in functions too, and names of modules apart from names of things."""
    text = "import x.y\ndef f():\n    from az_mpi.files import sha256\nfrom az_mpi import config\n"
    (tmp_path / "a.py").write_text(text)
    assert imports(tmp_path / "a.py") == {"x.y", "az_mpi.files.sha256", "az_mpi.config"}
    assert own_imports(tmp_path / "a.py") == {"files", "config"}


@pytest.mark.parametrize("name", NAMES)
def test_dependencies_point_down(name):
    package = name.split(".")[0]
    assert package in MAY_IMPORT, f"where in the order of layers is {package}?"
    found = own_imports(MODULES[f"az_mpi.{name}"])
    wrong = [module for module in found if not within(module, MAY_IMPORT[package] | {package})]
    assert wrong == []


def test_layers_have_no_cycle():
    """Taking away again and again whoever imports nothing that is left, nothing is left."""
    left = {name: {module.split(".")[0] for module in allowed} - {name, ""} for name, allowed in MAY_IMPORT.items()}
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("library", BELONGS)
def test_libraries_stay_where_they_belong(library):
    users = {name for name in NAMES if library in {found.split(".")[0] for found in imports(MODULES[f"az_mpi.{name}"])}}
    assert users <= BELONGS[library]


@pytest.mark.parametrize("name", NAMES)
def test_torch_is_for_networks_and_training(name):
    if within(name, WITHOUT_TORCH):
        assert "torch" not in {found.split(".")[0] for found in imports(MODULES[f"az_mpi.{name}"])}


def test_nothing_imports_the_program():
    assert [path for path in FILES if any(name.startswith("run_dist") for name in imports(path))] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_say_what_they_are(path):
    text = path.read_text()
    assert text.count("\n") <= 320
    assert ast.get_docstring(ast.parse(text)), "no docstring"


@pytest.mark.parametrize("word", ["pickle", "torch.load(", "torch.save(", "marshal", "shelve"])
def test_no_format_that_can_run_code(word):
    assert [path.name for path in FILES if word in path.read_text()] == []


BIG = {"numpy", "torch", "numba", "mpi4py", "h5py", "horovod", "matplotlib", "safetensors"}


def loaded(*arguments):
    """Return which of BIG a Python program loads: it is run with a report of its imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip() for line in lines}
    assert len(names) > 20, done.stderr
    return {name.split(".")[0] for name in names} & BIG


@pytest.mark.parametrize("module", ["az_mpi.config", "az_mpi.command_line", "az_mpi.games", "az_mpi.problems"])
def test_configuration_and_command_line_load_nothing_big(module):
    assert loaded("-c", f"import {module}") == set()


@pytest.mark.parametrize("options", [
    ["--help"], ["--version"], ["--help_config"], ["--config_file", "configs/tictactoe.json", "--check_config"],
])  # fmt: skip
def test_information_options_load_nothing_big(options):
    assert loaded("run_dist.py", *options) == set()


@pytest.mark.parametrize("command", ["launch", "hosts", "status", "report", "doctor", "verify"])
def test_commands_say_their_help_at_once(command):
    assert loaded("-m", "az_mpi", command, "--help") == set()


def test_the_command_az_mpi_is_the_module_from_any_folder(tmp_path, monkeypatch, capsys):
    """As pyproject.toml has it, and as `make setup` has installed it."""
    [(module, function)] = re.findall(r'^az_mpi = "(.+):(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    monkeypatch.setattr(sys, "argv", ["az_mpi", "--help"])
    assert getattr(importlib.import_module(module), function)() == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in ("launch", "hosts", "doctor", "status", "report", "verify"))
    program = Path(sys.executable).parent / "az_mpi"
    if not program.is_file():
        pytest.skip("this environment was not made by `make setup`")
    done = subprocess.run([program, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == said


def test_the_report_of_imports_sees_what_is_loaded():
    assert loaded("-c", "import numpy") == {"numpy"}
