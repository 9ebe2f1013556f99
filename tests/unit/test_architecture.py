"""Dependencies point down (docs/architecture.md), modules stay small, and reading a configuration loads nothing big."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi import __version__
from az_mpi.config.load import KEYS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "az_mpi").rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}

# What a package may import of az_mpi besides itself; "" is the version.
MAY_IMPORT = {
    "core": "",
    "games": "core",
    "records": "config core games liveness mpi selfplay storage",
    "search": "core",
    "liveness": "core",
    "mpi": "core liveness",
    "config": "core",
    "network": "core games liveness",
    "selfplay": "core games liveness search",
    "train": "core games liveness mpi network selfplay",
    "storage": "config core games liveness selfplay",
    "player": "config core games mpi network search storage",
    "evaluate": "config core games liveness mpi network player records search storage",
    "telemetry": "config core games liveness storage",
    "report": "config core games storage telemetry",
    "run": "config core evaluate games liveness mpi network search selfplay storage telemetry train",
    "play": "core games player records selfplay storage",
    "export": "core games network play player report storage",
    "loop": "core mpi report run selfplay telemetry",
    "modes": "config core liveness loop mpi player run selfplay storage telemetry",
    "launch": "config core liveness mpi storage telemetry",
    "doctor": "config core games mpi run selfplay storage telemetry train",
    "plan": "config core doctor evaluate games launch mpi network report search selfplay telemetry train",
    "__main__": "core",
}
MAY_IMPORT = {package: {"", *allowed.split()} for package, allowed in MAY_IMPORT.items()}
# Libraries that belong to few modules; elsewhere they are not imported.
BELONGS = {
    "mpi4py": {"mpi.world", "mpi.peers", "doctor.probe"},
    "horovod": {"train.backends.horovod_backend", "doctor.probe"},
    "openvino": {"network.engines.openvino_engine"},
    "onnxruntime": set(),
    "tensorrt": set(),
    "h5py": {"storage.segment"},
    "pydantic": {"config.load", "config.schema", "config.fields"},
    "bitbully": {"evaluate.solver"},
    "pyspiel": {"games.openspiel", "games.openspiel_fit", "evaluate.openspiel_bot"},
    "open_spiel": {"games.openspiel_input"},
    "safetensors": {"run.bad_steps", "storage.checkpoint", "run.evaluation_phase"},
}
CHECKING = "TYPE_CHECKING"
LINES_MAX, FUNCTION_LINES_MAX = 400, 50
WITHOUT_TORCH = ("core", "config", "games", "search", "selfplay", "evaluate", "liveness", "loop")


def imports(path, for_types=True):
    """Return the dotted names that a file imports, anywhere in it: "a.b" for `import a.b` and for `from a import b`.
    for_types: also those that it imports `if TYPE_CHECKING`, at its top, which are not loaded when it runs."""
    names, tree = set(), ast.parse(path.read_text())
    if not for_types:
        tree.body = [node for node in tree.body if not isinstance(node, ast.If) or ast.unparse(node.test) != CHECKING]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_imports(path, for_types=True):
    """Return the modules of az_mpi that a file imports, without "az_mpi."; "" for the package itself."""
    found = set()
    for name in imports(path, for_types):
        if name.split(".")[0] == "az_mpi":
            while name not in MODULES:
                name = name.rpartition(".")[0]
            found.add(name.removeprefix("az_mpi").removeprefix("."))
    return found


NAMES = [name.removeprefix("az_mpi.") for name in MODULES if name != "az_mpi"]


def test_imports_are_found_as_they_are_written(tmp_path):
    """The tests' own reading of imports finds those in functions and tells names of modules from names of things."""
    text = "import x.y\ndef f():\n    from az_mpi.core.files import sha256\nfrom az_mpi.config import load as config\n"
    (tmp_path / "a.py").write_text(text)
    assert imports(tmp_path / "a.py") == {"x.y", "az_mpi.core.files.sha256", "az_mpi.config.load"}
    assert own_imports(tmp_path / "a.py") == {"core.files", "config.load"}
    (tmp_path / "b.py").write_text("import x\nif TYPE_CHECKING:\n    from az_mpi.core import files\n")
    assert imports(tmp_path / "b.py") == {"x", "az_mpi.core.files"} and imports(tmp_path / "b.py", False) == {"x"}


def test_packages_import_only_what_stands_below_them():
    """What is imported for types alone may come from any package, as long as there is no circle."""
    left = {package: allowed - {""} for package, allowed in MAY_IMPORT.items()}
    for name in NAMES:
        package, path = name.split(".")[0], MODULES[f"az_mpi.{name}"]
        found = {module.split(".")[0] for module in own_imports(path, for_types=False)}
        assert found <= MAY_IMPORT[package] | {package}, (
            f"{name} imports from {found - MAY_IMPORT[package] - {package}}"
        )
        left[package] |= {module.split(".")[0] for module in own_imports(path)} - {"", package}
    while ready := [package for package, needs in left.items() if not needs & left.keys()]:
        for package in ready:
            del left[package]
    assert left == {}, "packages that import each other in a circle"


def test_no_modules_import_each_other_in_a_circle():
    """This holds within a package too, and imports in functions and for types alone count."""
    left = {name: own_imports(MODULES[f"az_mpi.{name}"]) - {"", name} for name in NAMES}
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    assert left == {}


def test_the_registry_names_only_what_stands_below_its_users():
    """What a name in the configuration stands for is written as text, which imports do not show: whatever runs within
    a training may not come from a package above `run`."""
    below = MAY_IMPORT["run"] | {"run"}
    text = MODULES["az_mpi.core.registry"].read_text()
    named = set(re.findall(r"\baz_mpi\.(\w+)[\w.]*:\w+", text))
    assert named >= {"games", "network", "search", "train", "evaluate", "telemetry"} and named <= below, named - below


def test_the_root_has_only_the_story_and_no_two_files_share_a_name():
    assert {path.stem for path in (ROOT / "az_mpi").glob("*.py")} == {"loop", "modes", "__main__", "__init__"}
    names = [path.stem for path in FILES if path.stem != "__init__"]
    assert [name for name in names if names.count(name) > 1] == []


def test_libraries_stay_where_they_belong():
    for name in NAMES:
        package, path = name.split(".")[0], MODULES[f"az_mpi.{name}"]
        found = {library.split(".")[0] for library in imports(path, for_types=False)}
        wrong = [library for library, users in BELONGS.items() if library in found and name not in users]
        assert wrong == [], f"{name} imports {wrong}"
        assert "torch" not in found or package not in WITHOUT_TORCH, f"{name} imports torch"


def test_no_module_compares_names_that_the_registry_knows():
    """No module compares the name of a game, or of anything else that can be plugged in, with one that it knows."""
    keys = "|".join(["game", *(key.rpartition(".")[2] for key, row in KEYS.items() if row.registry)])
    compared = re.compile(rf"\b({keys})(\.name)? ([!=]= |(not )?in \(?)['\"]|Literal\[.*\"(connect4|openvino|puct)")
    assert [path.name for path in FILES if compared.search(path.read_text())] == []


def test_no_test_module_imports_another():
    """Helpers of several test modules are in modules beside them, whose names do not begin with "test_"."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found = [name for name in names if name.rpartition(".")[2].startswith("test_")]
            assert not found, f"{path.relative_to(ROOT)} imports {found}"


def test_no_module_of_the_package_imports_run_dist():
    assert [path for path in FILES if any(name.startswith("run_dist") for name in imports(path))] == []


def test_modules_are_small_and_say_what_they_are():
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= LINES_MAX or path.name == "schema.py", path  # that one is a table of keys
        assert ast.get_docstring(ast.parse(text)), f"{path}: no docstring"


def test_functions_are_small():
    for name in NAMES:
        for node in ast.walk(ast.parse(MODULES[f"az_mpi.{name}"].read_text())):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, f"{name}: {node.name}"


def test_counts_are_named_in_one_way():
    """They are named num_games, not games_num."""
    for path in FILES:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        names |= {node.arg for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.arg)}
        assert [name for name in names if name.lower().endswith("_num")] == [], path
    assert [key for key in KEYS if key.endswith("_num")] == []


def public_functions(body, name):
    """Yield (name, function, its arguments without self or cls) of the public functions and methods of a module."""
    for node in body:
        name_of_node, inside = f"{name}.{getattr(node, 'name', '')}", name.rpartition(".")[2][:1].isupper()
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, name_of_node)
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name.endswith("__")):
            given = node.args
            arguments = [*given.args[inside:], given.vararg, *given.kwonlyargs, given.kwarg]
            yield name_of_node, node, [argument for argument in arguments if argument]


def test_public_functions_are_annotated():
    """What mypy checks: it leaves out what has no annotations. Attributes need none where their value tells."""
    missing = []
    for name in NAMES:
        for place, node, arguments in public_functions(ast.parse(MODULES[f"az_mpi.{name}"].read_text()).body, name):
            missing += [f"{place}({argument.arg})" for argument in arguments if not argument.annotation]
            has_result = node.returns or node.name == "__init__" and arguments
            missing += [] if has_result else [f"{place} -> ?"]
    assert missing == []


@pytest.mark.parametrize("word", ["pickle", "torch.load(", "torch.save(", "marshal", "shelve"])
def test_no_format_that_can_run_code(word):
    assert [path.name for path in FILES if word in path.read_text()] == []


BIG = {"numpy", "torch", "numba", "mpi4py", "h5py", "horovod", "safetensors"}


def loaded(*arguments):
    """Return which of BIG a Python program loads: it is run with a report of its imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip() for line in lines}
    assert len(names) > 20, done.stderr
    return {name.split(".")[0] for name in names} & BIG


@pytest.mark.parametrize("module", ["config.load", "config.command_line", "games", "core.problems", "core.registry"])
def test_configuration_and_command_line_load_nothing_big(module):
    assert loaded("-c", f"import az_mpi.{module}") == set()


@pytest.mark.parametrize("options", [["--help"], ["--version"], ["--help_config"]])
def test_information_options_load_nothing_big(options):
    assert loaded("run_dist.py", *options) == set()


@pytest.mark.parametrize(
    "command", "launch hosts status report doctor verify play gtp export match ladder games import".split()
)
def test_help_of_every_command_loads_no_torch(command):
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


def test_the_command_run_dist_py_is_the_program_from_any_folder(tmp_path):
    """As pyproject.toml has it. The folder of a command comes first on sys.path, and the command has the name of the
    module run_dist: an import of that would get the command itself."""
    text = (ROOT / "pyproject.toml").read_text()
    [(module, function)] = re.findall(r'^"run_dist.py" = "(.+):(.+)"$', text, re.MULTILINE)
    assert 'py-modules = ["run_dist"]' in text, "it is installed beside the package"
    command = tmp_path / "run_dist.py"
    command.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    done = subprocess.run(
        [sys.executable, command, "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"az_mpi {__version__}\n", "")


def test_the_report_of_imports_sees_what_is_loaded():
    assert loaded("-c", "import numpy") == {"numpy"}
