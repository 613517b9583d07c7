"""Frames with sockets, to and from another process of this machine.

The socket under it keeps frames apart (SOCK_SEQPACKET): a frame and its sockets come whole, in order, or the channel
ends. Whoever sends a socket keeps its own copy until it closes it.
"""

import asyncio
import contextlib
import os
import socket
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from gateway.errors import SocketsError

FRAME_BYTES: Final = 128 * 1024
"""Most bytes of a frame."""

FRAME_SOCKETS: Final = 64
"""Most sockets of a frame."""

_RIGHTS_BYTES: Final = socket.CMSG_SPACE(FRAME_SOCKETS * array("i").itemsize)
_BUFFER_BYTES: Final = 4 * FRAME_BYTES
_CUT: Final = socket.MSG_TRUNC | socket.MSG_CTRUNC

OnFrame = Callable[[bytes, list[socket.socket]], None]


class Channel:
    """One end. `on_frame` gets each frame and its sockets, which are then the receiver's to close; `on_end` is called
    once, when the other end has gone or has sent what is no frame, not after :meth:`close`."""

    def __init__(self, connection: socket.socket, on_frame: OnFrame, on_end: Callable[[], None]) -> None:
        self._socket, self._on_frame, self._on_end = connection, on_frame, on_end
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[bytes, Sequence[socket.socket], asyncio.Future[None]]] = deque()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._loop.add_reader(connection.fileno(), self._receive)

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    async def send(self, frame: bytes, sockets: Sequence[socket.socket] = ()) -> None:
        """Returns once the system has it, after those that were sent before. Raises SocketsError if the other end has
        gone, or the frame is empty or too large."""
        if not 0 < len(frame) <= FRAME_BYTES or len(sockets) > FRAME_SOCKETS:
            raise SocketsError(
                f"a frame has 1 to {FRAME_BYTES} bytes and at most {FRAME_SOCKETS} sockets, this one {len(frame)} and "
                f"{len(sockets)}"
            )
        if not self.is_open:
            raise SocketsError("the process at the other end has gone")
        sent = self._loop.create_future()
        self._waiting.append((frame, sockets, sent))
        if len(self._waiting) == 1:
            self._send()
        await sent

    def close(self) -> None:
        """Closes this end; who waits in :meth:`send` gets SocketsError."""
        if not self.is_open:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._send_no_more()

    def abandon(self) -> None:
        """Nothing more passes: from now on each send at the other end fails. `on_frame` still gets what it had sent by
        then, and `on_end` follows."""
        if not self.is_open:
            return
        self._loop.remove_writer(self._socket.fileno())
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._send_no_more()
        self._loop.call_soon(self._read_rest)

    def _send_no_more(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, sent in waiting:
            if not sent.done():
                sent.set_exception(SocketsError("the process at the other end has gone"))

    def _send(self) -> None:
        while self._waiting:
            frame, sockets, sent = self._waiting[0]
            try:
                if not sent.cancelled():
                    socket.send_fds(self._socket, [frame], [one.fileno() for one in sockets])
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._send)
                return
            except OSError:
                self.abandon()
                return
            self._waiting.popleft()
            if not sent.done():
                sent.set_result(None)
        self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        try:
            self._read()
        except BlockingIOError:
            pass
        except OSError:  # the other end has gone without reading all that it had got
            self._read_rest()

    def _read_rest(self) -> None:
        """What the other end had sent before it went is still there. It is read at once: the loop may have stopped
        watching a socket that had an error."""
        with contextlib.suppress(OSError):
            while self.is_open:
                self._read()
        self._end()

    def _read(self) -> None:
        frame, rights, flags, _ = self._socket.recvmsg(FRAME_BYTES, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
        fds = _descriptors(rights)
        if not frame or flags & _CUT:
            for fd in fds:
                os.close(fd)
            self._end()
            return
        self._on_frame(frame, list(_sockets(fds)))

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._on_end()


def _descriptors(rights: list[tuple[int, int, bytes]]) -> list[int]:
    """`socket.recv_fds` would lose the flag that keeps them from programs that this process starts."""
    fds = array("i")
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()


def _sockets(fds: list[int]) -> list[socket.socket]:
    made = []
    for fd in fds:
        try:
            made.append(socket.socket(fileno=fd))
        except OSError:  # it is something else
            with contextlib.suppress(OSError):
                os.close(fd)
    for one in made:
        one.setblocking(False)
    return made
