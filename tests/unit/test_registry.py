"""The registry: names, arguments, users' files and modules, and the errors for wrong ones."""

import sys

import pytest

from az_mpi.core import registry
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.core.registry import Registry, parse


class Base:
    """What the plug-ins of these tests are: they take a size, and of the program a seed."""


class Plain(Base):
    def __init__(self, seed, size=3, *, komi=7.5):
        self.made = seed, size, komi


class Bare(Base):
    pass


THINGS = Registry("thing", f"{__name__}:Base", "seed rank", {"plain": f"{__name__}:Plain", "bare": f"{__name__}:Bare"})


def make(text, seed=5):
    return THINGS.make(text, seed=seed, rank=1)


def refusal(call, *arguments, kind=Refusal, **more):
    with pytest.raises(kind) as caught:
        call(*arguments, **more)
    assert caught.value.status == kind.status
    return str(caught.value)


@pytest.mark.parametrize(
    "text, place, attribute, arguments",
    [
        ("go", "", "go", {}),
        (" go ( ) ", "", "go", {}),
        ("go(size=9,komi=-7.5)", "", "go", {"size": 9, "komi": -7.5}),
        ("a.b_1:Rules", "a.b_1", "Rules", {}),
        (
            "own.py:Rules(text='x:y(1)', pair=(1, [2, None]), yes=True)",
            "own.py",
            "Rules",
            {"text": "x:y(1)", "pair": (1, [2, None]), "yes": True},
        ),
        ("/a b/c:d(1)/own.py:Rules(a={'b': 1})", "/a b/c:d(1)/own.py", "Rules", {"a": {"b": 1}}),
    ],
)
def test_names_are_parsed_in_every_allowed_form(text, place, attribute, arguments):
    name = parse(text)
    assert name == (place, attribute, arguments) and parse(str(name)) == name
    assert name.is_file == place.endswith(".py")


def test_a_short_name_has_neither_folder_nor_order():
    assert parse("/a/b/own.py:Rules(b=1, a='x')").short() == parse("own.py:Rules(a='x',b=1)").short()
    assert parse("a.b:Rules").short() == "a.b:Rules" and parse("go()").short() == "go"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "go(9)",
        "go(size)",
        "go(size=)",
        "go(size=9",
        "go)",
        "go(size=9)(komi=7)",
        "go(**{'a': 1})",
        "go(a=1, a=2)",
        "go(size=other)",
        "go(size=1+1j*2)",
        "go(size=__import__('os').getpid())",
        "go(size=[i for i in (1,)])",
        "go(size=f'{1}')",
        "go(size=9); print()",
        "own.py",
        "own.py:",
        "own.py:Rules.inner",
        "a b:Rules",
        "9go",
        "go-9",
        "go(size=" + "[" * 5000 + "]" * 5000 + ")",
    ],
)
def test_wrong_names_are_refused_and_nothing_is_evaluated(text, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: pytest.fail("it was evaluated"))
    with pytest.raises(ValueError):
        parse(text)
    assert THINGS.problem(text) and 'thing = "' in refusal(THINGS.find, text)


def test_built_in_names_take_their_own_arguments_and_what_the_program_offers():
    assert make("plain").made == (5, 3, 7.5)
    assert make("plain(size=9, komi=0)").made == (5, 9, 0)
    assert type(make("bare")) is Bare and THINGS.names == ["plain", "bare"]
    assert THINGS.problem("plain(nothing=1)") is None, "arguments are looked at when it is imported"


def test_a_wrong_name_or_argument_gets_the_nearest_one():
    assert "did you mean plain?" in refusal(make, "plian")
    said = refusal(make, "quite_else")
    assert "did you mean" not in said and '"plain" or "bare", or a class of your own' in said
    said = refusal(make, "plain(sise=4)")
    assert "Plain takes no argument sise; did you mean size?" in said and "it takes: size=3, komi=7.5" in said
    assert "takes no argument seed" in refusal(make, "plain(seed=4)")  # which is not the user's
    assert "it takes: none" in refusal(make, "bare(size=4)")


OWN = f"""
from {__name__} import Base

class Rules(Base):
    def __init__(self, seed, size, deep=False):
        if size < 1:
            raise ValueError(f"size is {{size}}, and must be at least 1")
        self.made = seed, size, deep

class Else:
    pass

def function():
    pass
"""


def test_a_class_of_a_users_file_is_found_and_made(tmp_path):
    path = tmp_path / "own rules.py"
    path.write_text(OWN)
    name = f"{path}:Rules"
    THINGS.check(f"{name}(size=4)")
    made = make(f"{name}(size=4)", seed=2)
    assert made.made == (2, 4, False) and isinstance(made, Base)
    assert type(made) is THINGS.find(name), "it is run once"
    module, source = registry.load(str(path))
    assert source.content.decode() == OWN and module.Rules is type(made) and sys.modules[module.__name__] is module
    path.write_text("changed")
    assert registry.load(str(path))[1] == source, "the source is the one that was loaded"
    assert "Rules needs size" in refusal(THINGS.check, name)
    assert "ValueError: size is 0, and must be at least 1" in refusal(make, f"{name}(size=0)")
    assert "did you mean Rules?" in refusal(THINGS.find, f"{path}:Ruls")
    for wrong in ("Else", "function", "Base"):
        assert "did you mean Rules?" in refusal(THINGS.find, f"{path}:{wrong}")


def test_files_that_cannot_be_loaded_are_refused(tmp_path):
    for number, (text, said, kind) in enumerate(
        (
            ("x = (", "line 1: SyntaxError", Refusal),
            ("\n\n1 / 0", "line 3: ZeroDivisionError", Refusal),
            ("import no_such_module_1", "line 1: ModuleNotFoundError", Refusal),
            ("import errno; raise OSError(errno.ESTALE, 'away')", "away", NotNow),
            ("import errno; raise OSError(errno.EDQUOT, 'full')", "full", Refusal),
        )
    ):
        path = tmp_path / f"own{number}.py"
        path.write_text(text)
        assert said in refusal(THINGS.find, f"{path}:Rules", kind=kind)
    assert "cannot be read: No such file" in refusal(THINGS.find, f"{tmp_path}/none.py:Rules")


def test_a_class_of_an_installed_module_is_found_and_made(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_package_1").mkdir()
    (tmp_path / "own_package_1" / "rules.py").write_text(OWN)
    name = "own_package_1.rules:Rules(size=1)"
    assert make(name).made == (5, 1, False)
    assert registry.load("own_package_1.rules")[1].content.decode() == OWN
    assert "own_package_1.other" in refusal(THINGS.find, "own_package_1.other:Rules")
    assert "install it on every host" in refusal(THINGS.find, "no_such_module_1:Rules")
    assert "is no subclass" in refusal(THINGS.find, "os:system") + refusal(THINGS.find, "subprocess:Popen")


def test_a_copy_of_a_file_is_the_same_module(tmp_path):
    """A copy in a run's folder has the classes that the run uses."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(OWN + "\n# the same")
    one, other = (registry.load(f"{tmp_path}/{folder}/own.py") for folder in ("a", "b"))
    assert one[0] is other[0] and one[1].sha256 == other[1].sha256 and one[1].path != other[1].path
    (tmp_path / "own.py").write_text("1 / 0")
    for _ in range(2):
        assert "ZeroDivisionError" in refusal(THINGS.find, f"{tmp_path}/own.py:Rules")


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(OWN + f"\nplace = {folder!r}\n")
    modules = [registry.load(f"{tmp_path}/{folder}/own.py")[0] for folder in ("a", "b")]
    assert [module.place for module in modules] == ["a", "b"]
    assert all(module.Rules.__module__ == module.__name__ for module in modules)


def test_every_built_in_name_leads_somewhere():
    found = [item for item in vars(registry).values() if isinstance(item, Registry)]
    assert found
    for one in found:
        for name in one.names:
            assert callable(one.find(name)), f"{one.key}: {name}"
