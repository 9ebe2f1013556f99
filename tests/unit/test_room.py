"""The space that a job needs on each host beside the run's folder."""

import dataclasses
import os

import pytest

from az_mpi.core import room
from az_mpi.core.host_facts import HostFacts, free_bytes, temporary_folder
from az_mpi.doctor import machine

MIB = 2**20


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    return HostFacts.look(tmp_path_factory.mktemp("no checkout"))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return here(path) -> the HostFacts where TMPDIR is this folder of the test."""

    def here(name):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        return HostFacts.look(tmp_path)

    return here


def test_a_folder_with_room_passes_and_no_file_is_left(temporary, tmp_path):
    found = temporary("t")
    assert room.lack_of_temporary(found, 1000) is None and found.temporary == str(tmp_path / "t")
    assert list(tmp_path.iterdir()) == [] and found.temporary_bytes > 0


def test_a_folder_that_cannot_be_written_to_is_named_with_the_reason(temporary, tmp_path):
    (tmp_path / "file").write_text("")
    what, cure = room.lack_of_temporary(temporary("file/t"), 1)
    assert str(tmp_path / "file/t") in what and "Not a directory" in what and "TMPDIR" in cure


@pytest.mark.parametrize(
    "variables, folder",
    [
        ({}, "/tmp"),
        ({"TMP": "/c"}, "/c"),
        ({"TMP": "/c", "TEMP": "/b"}, "/b"),
        ({"TMP": "/c", "TMPDIR": "/a", "TEMP": "/b"}, "/a"),
    ],
)
def test_the_folder_is_the_one_that_open_mpi_takes(variables, folder, monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert temporary_folder() == folder


@pytest.mark.parametrize(
    "free, num_ranks, lacks",
    [
        (0, 1, True),
        (32 * 1024, 2, True),
        (MIB, 1, True),
        (2 * MIB, 1, False),
        (2 * MIB, 16, False),
        (2 * MIB, 64, True),
        (None, 64, False),
    ],
)
def test_more_ranks_need_more_room_for_temporary_files(facts, free, num_ranks, lacks):
    found = dataclasses.replace(facts, temporary_bytes=free, temporary_error="")
    assert (room.lack_of_temporary(found, num_ranks) is not None) == lacks


def test_free_bytes_are_those_of_the_file_system(tmp_path):
    found = os.statvfs(tmp_path)
    assert abs(free_bytes(str(tmp_path)) - found.f_bavail * found.f_frsize) < 2**30
    assert free_bytes(str(tmp_path / "none/yet")) is not None and free_bytes("/proc") is None


# Free MiB of /dev/shm, ranks -> the segments' MiB: None where Open MPI's own size fits, 0 where there are none.
@pytest.mark.parametrize(
    "free, num_ranks, size",
    [
        (64, 1, None),
        (1, 1, None),
        (64, 2, None),
        (48, 2, None),
        (47, 2, 15),
        (64, 8, 7),
        (144, 8, None),
        (143, 8, 15),
        (18, 8, 2),
        (17, 8, 0),
        (1, 2, 0),
    ],
)
def test_segments_fit_into_dev_shm_with_one_to_spare(free, num_ranks, size):
    environment = {"OMPI_COMM_WORLD_LOCAL_SIZE": str(num_ranks)}
    note = room.fit_into_shared_memory(free * MIB, environment)
    assert bool(note) == (size is not None)
    assert environment.get(room.SEGMENT) == (str(size * MIB) if size else None)
    assert environment.get(room.TRANSPORTS) == ("^ofi,sm" if size == 0 else None)
    assert not size or (num_ranks + 1) * size <= free


@pytest.mark.parametrize(
    "name, value",
    [
        ("OMPI_MCA_btl_sm_segment_size", "4194304"),
        ("OMPI_MCA_btl", "tcp,self"),
        ("OMPI_MCA_btl_sm_backing_directory", "/scratch"),
    ],
)
def test_settings_of_the_user_for_messages_stay(name, value):
    environment = {"OMPI_COMM_WORLD_LOCAL_SIZE": "8", name: value}
    before = dict(environment)
    room.fit_into_shared_memory(MIB, environment)
    assert environment == before


def test_transports_that_the_user_left_out_stay_left_out():
    environment = {"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "OMPI_MCA_btl": "^usnic"}
    room.fit_into_shared_memory(MIB, environment)
    assert environment["OMPI_MCA_btl"] == "^usnic,sm"


def test_the_doctor_judges_each_host_by_its_own_ranks(facts):
    good = facts.to_dict() | {"host": "good", "temporary_bytes": 2**30, "temporary_error": "", "shared_bytes": 2**30}
    bad = good | {"host": "bad", "temporary_bytes": 0, "shared_bytes": 20 * MIB}
    assert [check.level for check in machine.rooms([good, good])] == ["ok"]
    assert [(check.level, check.text.split(":")[0]) for check in machine.rooms([good, bad, bad])] == [
        ("problem", "bad"),
        ("warning", "bad"),
    ]
    assert [check.level for check in machine.rooms([good, bad])] == ["problem"], "one rank sends nothing on its host"
