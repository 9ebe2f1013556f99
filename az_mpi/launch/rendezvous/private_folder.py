"""A folder by which processes of one user on several machines exchange messages; nobody else has access."""

import json
import os
import secrets
import stat
from typing import Any

from az_mpi.core.files import passes
from az_mpi.core.problems import NotNow, Refusal, escape

MESSAGE_BYTES_MAX = 2**22


class PrivateFolder:
    """Messages are JSON objects in files; a file that can be seen is whole. Raises Refusal if other users have access,
    NotNow if the file system fails, perhaps for a while.

    failing: whether the newest message could not be written, as on a full disk."""

    def __init__(self, path: str):
        """path: created unless it exists; its parent must exist."""
        path = os.path.normpath(path)  # without a "/" at the end, which would follow a link
        shown = f"--rendezvous {escape(path)}"
        self.failing = False
        try:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            reason = getattr(error, "strerror", None) or error
            if passes(error):
                raise NotNow(f"{shown}: {reason}") from error
            raise Refusal(
                f"{shown}: {'a link' if os.path.islink(path) else reason}\n"
                "  give a folder on a file system that all nodes share, no link to one"
            ) from error
        state = os.fstat(self.descriptor)
        mode = stat.S_IMODE(state.st_mode)
        if state.st_uid != os.geteuid() or mode != 0o700:
            owner = "you" if state.st_uid == os.geteuid() else f"user {state.st_uid}"
            os.close(self.descriptor)
            raise Refusal(
                f"{shown}: belongs to {owner}, mode {mode:04o}; what lies in it is run on every node, "
                "so only you may have access\n  chmod 700 it, or give a folder of your own"
            )

    def names(self) -> list[str]:
        """Return the names of the messages. This also makes a network file system look for new ones. Raises OSError."""
        # A new descriptor: threads that list one descriptor at the same time share their position in it and miss names.
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            return [name for name in os.listdir(descriptor) if not name.startswith(".")]
        finally:
            os.close(descriptor)

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a message; replaces one of the same name. Raises OSError."""
        temporary = f".{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open(os.open(temporary, flags, 0o600, dir_fd=self.descriptor), "w") as file:
                file.write(json.dumps(content))
            os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            self.failing = False
        except BaseException:
            self.failing = True
            self.remove(temporary)
            raise

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a message, or None if there is none of this user. Raises OSError if the file system fails, perhaps for
        a while."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.descriptor)
            with open(descriptor, "rb") as file:
                state = os.fstat(descriptor)
                if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid() or state.st_nlink > 1:
                    return None
                content = json.loads(file.read(MESSAGE_BYTES_MAX + 1))
        except (OSError, ValueError, RecursionError) as error:
            if passes(error):
                raise
            return None
        return content if isinstance(content, dict) else None

    def remove(self, name: str) -> None:
        """Remove a message, unless it is gone."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except OSError:
            pass
