"""docker/apptainer.def makes what docker/Dockerfile makes, line by line; `make test-docker` builds both."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
DEFINITION = (ROOT / "docker/apptainer.def").read_text()
PLACE = "/opt/az_mpi"
translator = SimpleNamespace(**runpy.run_path(str(ROOT / "tools/apptainer_to_dockerfile.py")))
header, sections = translator.sections(DEFINITION)
POST = "\n".join(sections["post"])


def joined(text):
    """Return the lines of a file with those that a backslash continues in one."""
    return re.sub(r"\\\n\s*", "", text).splitlines()


def stages():
    """Return {name: lines} of the Dockerfile's stages, without comments; the last one's name is "final"."""
    found, lines = {}, []
    for line in joined(DOCKERFILE):
        if line.startswith("FROM "):
            lines = found.setdefault(line.partition(" AS ")[2] or "final", [])
        if line.strip() and not line.startswith("#"):
            lines.append(line)
    return found


def packages(line):
    """Return what a line installs by apt-get."""
    words = re.search(r"--no-install-recommends ([^&;]+)", line)
    return set(words[1].split()) if words else set()


def test_both_begin_with_the_same_image_and_know_no_other_header():
    assert header == {"bootstrap": "docker", "from": re.search(r"^ARG BASE=(\S+)", DOCKERFILE, re.MULTILINE)[1]}


def test_both_install_the_same_packages_of_the_system():
    """Apptainer's starts no sshd: the user's mpirun does, or the host's."""
    docker = set().union(*(packages(line) for lines in stages().values() for line in lines))
    assert set().union(*map(packages, joined("\n".join(sections["post"])))) == docker - {"openssh-server"}


def test_both_copy_the_same_files_to_the_same_place():
    copied = [line.split() for lines in stages().values() for line in lines if line.startswith("COPY ")]
    docker = {word for words in copied if "--from=build" not in words for word in words[1:-1]}
    apptainer = dict(line.split() for line in sections["files"])
    assert set(apptainer) == docker - {"docker/host.sh"}  # which starts the sshd
    assert all(there == f"{PLACE}/{name}" for name, there in apptainer.items())
    assert f"WORKDIR {PLACE}" in DOCKERFILE
    assert all((ROOT / name).exists() for name in apptainer)


def test_both_set_up_by_the_same_script_and_remove_the_same_packages_of_pip():
    removed = re.compile(r"pip uninstall -q -y ([\w -]+)")
    assert set(removed.search(POST)[1].split()) == set(removed.search(DOCKERFILE.replace("\\\n", ""))[1].split())
    assert "tools/setup.sh" in POST and "tools/setup.sh" in DOCKERFILE
    for folder in ("torch/include", "torch/test"):
        assert folder in POST and folder in DOCKERFILE
    assert "/var/lib/apt/lists/*" in POST and f"cd {PLACE}" in sections["post"]


def test_both_set_the_same_variables():
    """Apptainer has the home folder of its user, and /tmp of the host: compiled kernels go where they usually go."""
    docker = dict(re.findall(r"(\w+)=(\S+)", " ".join(line for line in stages()["final"] if line.startswith("ENV "))))
    apptainer = dict(re.findall(r"(\w+)=(\S+)", " ".join(sections["environment"])))
    assert docker.pop("NUMBA_CACHE_DIR") == "/tmp/numba" and apptainer.pop("PYTHONPATH") == PLACE
    assert apptainer == docker


def test_the_program_of_the_image_is_run_dist_with_the_users_words():
    assert sections["runscript"] == [f'exec python {PLACE}/run_dist.py "$@"']


def test_neither_names_a_user_that_a_run_needs():
    """Any user may make a run in /runs, and nothing is in the home folder of the image's user."""
    assert "install -d -m 1777 /runs" in DOCKERFILE and "VOLUME /runs" in DOCKERFILE
    assert "HOME" not in DOCKERFILE and "HOME" not in "\n".join(map("\n".join, sections.values()))


@pytest.mark.parametrize(
    "changed", [DEFINITION.replace("Bootstrap: docker", "Bootstrap: yum"), DEFINITION + "\n%startscript\n    true\n"]
)
def test_what_the_translator_does_not_know_is_refused(changed):
    with pytest.raises(ValueError, match="not known"):
        translator.dockerfile(changed)


def test_the_translation_has_every_line_of_the_definition():
    text = translator.dockerfile(DEFINITION)
    assert [f"COPY {line}" in text for line in sections["files"]] == [True] * 6
    script = re.search(r"printf '(.*?)' >/post && sh -ex /post", text)[1]
    lines = script.replace("\\\\", "\\").split("\\n")
    assert lines[-len(sections["post"]) - 1 : -1] == sections["post"]
    for line in sections["environment"]:
        assert f"ENV {line.removeprefix('export ')}\n" in text
