"""What all parts of a contact need: what the peer has said of itself, and frames that wait to be written to it."""

from collections import deque
from collections.abc import Iterator

from edge.mesh.contact_frames import HEAD_BYTES, Frame, Hello, encode
from edge.mesh.errors import LocalContactError
from edge.mesh.known_to_peers import Peer
from edge.mesh.limits import MeshLimits
from edge.mesh.spray import PeerView


class ContactLink:
    """`hello`: the peer's, once it came."""

    def __init__(self, limits: MeshLimits) -> None:
        self.limits = limits
        self.hello: Hello | None = None
        self._out: deque[bytes | Iterator[Frame]] = deque()

    def send(self, frame: Frame) -> None:
        """Writes a frame, after those that wait."""
        self._out.append(encode(frame))

    def send_each(self, frames: Iterator[Frame]) -> None:
        """Writes frames, after those that wait; each is made when those before it are drained."""
        self._out.append(frames)

    def drain(self) -> list[bytes]:
        """The frames that wait, encoded: of those that are made meanwhile, no more than `limits.burst_bytes`."""
        drained: list[bytes] = []
        room = self.limits.burst_bytes
        while self._out and room > 0:
            first = self._out[0]
            if isinstance(first, bytes):
                drained.append(first)
                self._out.popleft()
            elif (frame := next(first, None)) is None:
                self._out.popleft()
            else:
                drained.append(encode(frame))
                room -= len(drained[-1])
        return drained

    @property
    def waits(self) -> bool:
        """Whether there are frames to drain."""
        return bool(self._out)

    def introduced(self, hello: Hello) -> None:
        """The peer has said hello."""
        self.hello = hello

    @property
    def peer(self) -> Hello:
        """The peer's hello. Raises LocalContactError before it came."""
        if self.hello is None:
            raise LocalContactError("the peer has not said hello yet")
        return self.hello

    @property
    def key(self) -> Peer:
        """Which peer it is."""
        return self.peer.name, self.peer.incarnation

    @property
    def view(self) -> PeerView:
        """The peer as :mod:`edge.mesh.spray` looks at it."""
        return PeerView(self.peer.name, self.peer.has_uplink, self.peer.predictability)

    @property
    def room(self) -> int:
        """The bytes of a frame's body that both sides allow."""
        return min(self.limits.frame_bytes, self.peer.frame_bytes) - HEAD_BYTES
