"""The channels that other processes of the machine open to this one."""

import socket
from collections.abc import Callable, Iterable

from gateway.sockets.channel import Channel
from gateway.sockets.directory import SocketDirectory

OnFrame = Callable[[Channel, bytes, list[socket.socket]], None]


class Channels:
    """Those to `name`, until it is closed. `on_frame` gets each frame with its channel and its sockets, which are then
    the receiver's; `on_end` each channel that the other end has left. Raises SocketsError."""

    def __init__(
        self,
        directory: SocketDirectory,
        name: str,
        on_frame: OnFrame,
        on_end: Callable[[Channel], None] = lambda _channel: None,
    ) -> None:
        self._on_frame, self._on_end = on_frame, on_end
        self._open: set[Channel] = set()
        self._listening = directory.listen(name, self._accept)

    def close(self) -> None:
        """Ends all of them; nobody reaches the name any more."""
        self._listening.close()
        for channel in self._open:
            channel.close()
        self._open.clear()

    def refuse(self, channel: Channel, sockets: Iterable[socket.socket] = ()) -> None:
        """Ends a channel that has brought what is not understood, and the sockets that came with it."""
        close_sockets(sockets)
        channel.close()
        self._open.discard(channel)

    def _accept(self, connection: socket.socket) -> None:
        def came(frame: bytes, sockets: list[socket.socket]) -> None:
            self._on_frame(channel, frame, sockets)

        def ended() -> None:
            self._open.discard(channel)
            self._on_end(channel)

        channel = Channel(connection, came, ended)
        self._open.add(channel)


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Those of a frame that nobody takes."""
    for one in sockets:
        one.close()
