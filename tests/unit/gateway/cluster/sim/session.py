"""What a toy home knows of a client, and the messages of the simulation."""

from collections import deque
from typing import Any, NamedTuple

WINDOW = 2
PACKET_IDS = (1, 2, 3)


class Message(NamedTuple):
    """`pid`: the packet id that its sender gave it."""

    number: int
    sender: str
    recipient: str
    qos: int
    pid: int


class Open(NamedTuple):
    """A QoS 2 message on its way to a client."""

    pid: int
    place: tuple[int, int]
    message: Message
    is_released: bool


class Session:
    def __init__(self, client: str) -> None:
        self.client = client
        self.link: Any = None
        self.received: dict[int, bool] = {}  # packet id: whether PUBREC may be sent
        self.releasing: set[int] = set()
        self.until = 0  # the offset up to which `received` is complete
        self.covered = 0  # the same, of the last record that was read back
        self.open: list[Open] = []
        self.durable: set[tuple[int, tuple[int, int]]] = set()  # open exchanges whose record was read back
        self.released: set[tuple[int, tuple[int, int]]] = set()  # the same, for PUBREL
        self.settled: dict[int, int] = {}
        self.queue: deque[tuple[int, int, Message]] = deque()
        self.sent: dict[int, tuple[int, int, Message]] = {}  # QoS 1, by packet id
        self.next_pid = 100
        self.waits_for: int | None = None

    def in_record(self) -> Any:
        return tuple(pid for pid, is_there in self.received.items() if is_there), self.until

    def out_record(self) -> Any:
        return tuple(self.open), dict(self.settled)
