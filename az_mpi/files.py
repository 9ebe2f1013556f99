"""Writing files that are whole whenever they can be seen: temporary name, fsync, rename, fsync of the folder."""

import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path, durable=True):
    """Give a temporary path to write to; it becomes `path` when the block ends, and vanishes if the block raises.

    durable=False leaves out the fsyncs, for what is written every moment and need not outlive a power cut.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path):
    """Give a temporary folder to fill; it becomes `path`, which must not exist, when the block ends."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            _sync(file)
        _sync(temporary)
        os.rename(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder):
    """Remove what writers that were killed left under their temporary names in `folder` and one level below it."""
    folder = Path(folder)
    for path in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_text(path, text, durable=True):
    """Write a small text file whole. durable: see `whole_file`."""
    with whole_file(path, durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path):
    """Return the SHA-256 of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
