"""The directory in which the processes of one machine find each other, one socket of the system's for each name.

Only processes of the same user may come: the directory must be theirs and closed to others, and each side asks the
system who the other one is. The path may be of any length: sockets are reached through the open directory, as a name
of a socket has 107 bytes at most.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from gateway.errors import SocketsError

_BACKLOG: Final = 64
_PEER: Final = struct.Struct("3i")


class Listening:
    """Takes connections to `name` until it is closed."""

    def __init__(self, directory: "SocketDirectory", name: str, accept: Callable[[socket.socket], None]) -> None:
        self._directory, self._name, self._accept = directory, name, accept
        self._loop = asyncio.get_running_loop()
        self._socket = directory.bind(name)
        self._loop.add_reader(self._socket.fileno(), self._take)

    def close(self) -> None:
        """Nobody reaches it any more; its name is free unless another process has it by now."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._directory.release(self._name, self._socket)
            self._socket.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):  # the peer has gone again, or there are no more descriptors
            taken, _ = self._socket.accept()
            taken.setblocking(False)
            if is_same_user(taken):
                self._accept(taken)
            else:
                taken.close()


class SocketDirectory:
    """Made if it is not there. Raises SocketsError if others may change it."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SocketsError(f"{path} cannot be used for sockets: {error.strerror}") from None
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            os.close(self._fd)
            raise SocketsError(f"{path} must belong to the user of this process, and nobody else may write to it")
        self._bound: dict[str, int] = {}

    def __enter__(self) -> "SocketDirectory":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def listen(self, name: str, accept: Callable[[socket.socket], None]) -> Listening:
        """`accept` gets each connection, which does not block. A process that had the name before is reached no more.
        Raises SocketsError."""
        return Listening(self, name, accept)

    def connect(self, name: str) -> socket.socket:
        """A connection to the process that has `name`; it does not block. Raises SocketsError if there is none."""
        made = _socket()
        try:
            made.connect(self._path(name))
        except OSError as error:
            made.close()
            raise SocketsError(f"no process of this machine answers as {name!r}: {error.strerror}") from None
        if not is_same_user(made):
            made.close()
            raise SocketsError(f"another user's process answers as {name!r}")
        return made

    def bind(self, name: str) -> socket.socket:
        """What :class:`Listening` accepts from."""
        made, path = _socket(), self._path(name)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            made.bind(path)
            made.listen(_BACKLOG)
        except OSError as error:
            made.close()
            raise SocketsError(f"cannot listen as {name!r}: {error.strerror}") from None
        self._bound[name] = os.stat(path).st_ino
        return made

    def release(self, name: str, _socket: socket.socket) -> None:
        """Takes the name away, unless another process has bound it meanwhile."""
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == self._bound.pop(name, 0):
                os.unlink(path)

    def _path(self, name: str) -> str:
        return f"/proc/self/fd/{self._fd}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def is_same_user(connection: socket.socket) -> bool:
    """Whether a process of this one's user is at the other end."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(peer)[1]) == os.geteuid()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    return made
