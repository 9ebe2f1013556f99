"""Every file that can be seen is whole."""

import errno
import math
import os
import subprocess
import sys

import pytest

from az_mpi.core import files

pytestmark = pytest.mark.process


@pytest.mark.parametrize("given, kept", [("0", "0o27"), ("0o77", "0o77")])
def test_new_files_of_every_command_are_private(given, kept):
    """This holds where the user's umask allows more, and what it forbids stays forbidden."""
    code = f"import os; from az_mpi import __main__; os.umask({given}); __main__.main(['verify', 'no run'])"
    done = subprocess.run([sys.executable, "-c", f"{code}; print(oct(os.umask(0)))"], capture_output=True, text=True)
    assert done.stdout.split() == [kept], done.stderr


def test_a_new_file_is_not_seen_before_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with files.whole_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists() and temporary.parent == tmp_path
        temporary.write_text("whole")
    assert path.read_text() == "whole" and list(tmp_path.iterdir()) == [path]


def test_an_old_file_stays_as_it_was_until_the_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with open(path) as reader:
        with files.whole_file(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new"
        assert reader.read() == "old"  # who had it open reads on in the old one


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("written", [True, False])
def test_nothing_is_left_of_a_file_whose_writing_fails(tmp_path, error, written):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), files.whole_file(path) as temporary:
        if written:
            temporary.write_text("half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_closing_a_new_file_without_content_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), files.whole_file(tmp_path / "a.txt"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_new_folder_is_not_seen_before_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "folder"
    path.parent.mkdir()
    with files.whole_folder(path) as temporary:
        (temporary / "a").write_text("1")
        (temporary / "b").write_text("2")
        assert not path.exists()
    assert {p.name: p.read_text() for p in path.iterdir()} == {"a": "1", "b": "2"}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_folder_whose_writing_fails(tmp_path, error):
    with pytest.raises(error), files.whole_folder(tmp_path / "folder") as temporary:
        (temporary / "a").write_text("1")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_never_replaced(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "a").write_text("old")
    with pytest.raises(OSError), files.whole_folder(path) as temporary:
        (temporary / "a").write_text("new")
    assert (path / "a").read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_removed_does_not_hide_the_first_error(tmp_path, monkeypatch):
    """An example is a file system that becomes read-only for a while."""

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "rmdir"):
            patch.setattr(os, name, refuse)
        for _ in range(2):
            with pytest.raises(OSError) as raised, files.whole_folder(tmp_path / "folder") as temporary:
                (temporary / "a").write_text("1")
            assert raised.value.errno == errno.EROFS
    with files.whole_folder(tmp_path / "folder") as temporary:
        (temporary / "b").write_text("2")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["folder", "folder/b"]


def test_leftovers_of_a_process_with_the_same_number_are_not_mixed_in(tmp_path):
    """A program that died has left its temporary folder, and this one has the same process number."""
    with files.whole_folder(tmp_path / "folder") as temporary:
        left = temporary
    left.mkdir()
    (left / "stale").write_text("of another run")
    os.rename(tmp_path / "folder", tmp_path / "moved")
    with files.whole_folder(tmp_path / "folder") as temporary:
        assert temporary == left
        (temporary / "a").write_text("1")
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["a"]


def test_data_reach_the_disk_before_the_name_does(tmp_path, monkeypatch):
    """The order is: fsync of the file, the rename, fsync of the folder."""
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), replace(a, b)))
    with files.whole_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("x")
    assert events == [str(temporary), "rename", str(tmp_path)]


def test_every_file_of_a_folder_reaches_the_disk_before_its_name_does(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (events.append("rename"), rename(a, b)))
    with files.whole_folder(tmp_path / "folder") as temporary:
        for name in ("a", "b"):
            (temporary / name).write_text(name)
    assert sorted(events[:2]) == [str(temporary / "a"), str(temporary / "b")]
    assert events[2:] == [str(temporary), "rename", str(tmp_path)]


def test_written_text_replaces_the_file(tmp_path):
    files.write_text(tmp_path / "a", "one\n")
    files.write_text(tmp_path / "a", "two\n")
    assert (tmp_path / "a").read_text() == "two\n" and len(list(tmp_path.iterdir())) == 1


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "games").mkdir()
    (tmp_path / "checkpoints" / ".000001.12.tmp").mkdir(parents=True)
    kept = [tmp_path / "config.json", tmp_path / "games" / "000000-000.h5", tmp_path / "games" / "a.tmp"]
    for path in (*kept, tmp_path / ".games.h5.12.tmp", tmp_path / "games" / ".000001-000.h5.12.tmp"):
        path.write_text("x")
    files.remove_leftovers(tmp_path)
    found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(kept) and not list((tmp_path / "checkpoints").iterdir())
    for folder in ("games", "selfplay"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / ".000002-000.h5.12.tmp").touch()
    files.remove_leftovers(tmp_path, besides=["selfplay"])
    assert [path.parent.name for path in tmp_path.glob("*/.*.tmp")] == ["selfplay"]


def test_a_folder_with_a_file_that_cannot_be_removed_now_is_out_of_the_way(tmp_path, monkeypatch):
    """As on NFS while another host has a file of an old checkpoint open: no error ends the run."""
    (tmp_path / "000001").mkdir()
    (tmp_path / "000001" / "model").touch()

    def busy(*given, **how):
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", busy)
        files.remove_folder(tmp_path / "000001")
        files.remove_leftovers(tmp_path)
    assert not (tmp_path / "000001").exists()
    files.remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


def test_create_refuses_an_existing_file_and_a_link(tmp_path):
    files.create(tmp_path / "a", b"1")
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "a", b"2")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "link", b"2")
    assert (tmp_path / "a").read_bytes() == b"1" and not (tmp_path / "b").exists()


def test_a_link_in_a_temporary_files_place_is_not_written_through(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / f".a.{os.getpid()}.tmp").symlink_to(tmp_path / "target")
    files.write_text(tmp_path / "a", "new")
    assert (tmp_path / "target").read_text() == "kept"
    assert (tmp_path / "a").read_text() == "new" and not (tmp_path / "a").is_symlink()


def test_a_forbidden_file_or_folder_never_appears(tmp_path):
    def forbid():
        assert len(list(tmp_path.iterdir())) == 1  # it is all written but for its name
        raise files.Forbidden("not ours")

    with pytest.raises(files.Forbidden):
        files.write_bytes(tmp_path / "a", b"1", before=forbid)
    with pytest.raises(files.Forbidden), files.whole_folder(tmp_path / "c", forbid) as temporary:
        files.create(temporary / "x", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(60)
def test_only_plain_files_are_opened(tmp_path):
    files.create(tmp_path / "a", b"1")
    assert files.read(tmp_path / "a") == b"1"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for name in ("link", "pipe", "none"):
        with pytest.raises(OSError):
            files.read(tmp_path / name)
    reader = None
    for _ in range(2):  # without another end, and with one
        for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
            with pytest.raises(OSError) as raised:
                files.open_plain(path, append if path != tmp_path else os.O_RDONLY)
            assert isinstance(raised.value, files.Foreign) and raised.value.strerror == "not a plain file"
            assert not files.unavailable(raised.value)  # nobody waits until it is one
        reader = reader or os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.close(reader)
    for name in ("a", "new"):
        with open(files.open_plain(tmp_path / name, append), "wb") as file:
            file.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"12" and (tmp_path / "new").read_bytes() == b"2"


def test_a_file_larger_than_the_limit_of_its_kind_is_not_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    assert files.read(path, 10) == b"x" * 10
    for bytes_max in (9, files.DATA_BYTES_MAX):
        with pytest.raises(files.Foreign, match="larger than"):
            files.read(path, bytes_max)
        os.truncate(path, 2**36)  # 64 GiB of nothing


@pytest.mark.parametrize("holes, kind", [(True, "Foreign"), (False, "OSError")])
def test_of_files_that_do_not_fit_into_memory_only_those_of_holes_are_damaged(tmp_path, holes, kind):
    """A limit on this process stands for a small machine, or for one whose memory others use."""
    code = (
        "import resource, sys; from az_mpi.core import files; files.READ_S = 0\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))\n"
        "try: files.read(sys.argv[1], 2**33)\n"
        "except OSError as error: print(type(error).__name__, files.passes(error), error)"
    )
    with open(tmp_path / "a", "wb") as file:
        if not holes:
            file.write(b"x" * 2**26)
        file.truncate(2**32)
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a"], capture_output=True, text=True)
    assert done.stdout.startswith(f"{kind} {not holes} ") and "memory" in done.stdout, done.stderr


@pytest.mark.parametrize("text", ["{", "", b"\xff", "[" * 100_000, b"[" * 100_000, '{"a":' * 100_000])
def test_all_broken_json_raises_one_kind_of_error(tmp_path, text):
    with pytest.raises(ValueError):
        files.parse_json(text)
    (tmp_path / "a").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError):
        files.read_json(tmp_path / "a")


def test_a_json_file_is_read(tmp_path):
    files.write_text(tmp_path / "a", '{"a": [1, "\u00e4"]}')
    assert files.read_json(tmp_path / "a") == {"a": [1, "\u00e4"]}


def test_text_that_is_not_utf_8_is_written(tmp_path):
    files.write_text(tmp_path / "a", "\u00e4 \udcff")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa4 ?"


class Clock:
    """time.monotonic and time.sleep of somebody who waits; each call of `act` answers with the next of `answers`."""

    def __init__(self, *answers):
        self.now, self.pauses, self.answers, self.said = 100.0, [], list(answers), []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def act(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def retry(self, give_up_s, **how):
        return files.retry_while_unavailable(
            self.act, give_up_s, self.said.append, sleep=self.sleep, clock=lambda: self.now, **how
        )


FULL, AWAY, NO_ACCESS, DAMAGED = (OSError(n, "") for n in (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EFBIG))


def test_an_unavailable_file_is_tried_again_with_growing_pauses_and_reported_once():
    clock = Clock(FULL, AWAY, NO_ACCESS, *[FULL] * 5, "done")
    assert clock.retry(math.inf) == "done" and clock.said == [FULL]
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_file_that_stays_unavailable_is_given_up():
    clock = Clock(AWAY)
    with pytest.raises(OSError) as raised:
        clock.retry(20.0)
    assert raised.value is AWAY and 20 <= clock.now - 100 < 20 + files.LONGEST_PAUSE_S
    with pytest.raises(OSError):
        Clock(AWAY).retry(0.0)


@pytest.mark.parametrize("error", [DAMAGED, ValueError(), FileNotFoundError(errno.ENOENT, "")])
def test_permanent_errors_are_not_tried_again(error):
    clock = Clock(FULL, error, "done")
    with pytest.raises(type(error)):
        clock.retry(math.inf)
    assert clock.pauses == [0.1]
    assert Clock(error, "done").retry(1.0, unavailable=lambda found: found is error) == "done"


def test_an_error_that_passes_while_reading_is_waited_for(tmp_path, monkeypatch):
    files.create(tmp_path / "a", b"1")
    errors, opened = [errno.ESTALE, errno.EIO], os.open

    def flaky(*arguments):
        if errors:
            raise OSError(errors.pop(), "away")
        return opened(*arguments)

    monkeypatch.setattr(os, "open", flaky)
    assert files.read(tmp_path / "a") == b"1" and errors == []
