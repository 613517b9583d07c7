"""A client: publishes at QoS 1 and 2, receives, and connects again whenever its connection ends or says nothing."""

from typing import Any

from tests.unit.gateway.cluster.sim.home import Home
from tests.unit.gateway.cluster.sim.session import PACKET_IDS, Message
from tests.unit.gateway.cluster.sim.world import Violation, World

PATIENCE_S = 0.6


class Link:
    """A connection: packets in order, both ways; what is on its way when it ends is lost."""

    def __init__(self, client: "Client", home: Home) -> None:
        self.client = client
        self.home = home
        self.is_open = True
        self._world = client.world
        self._there = self._back = 0.0

    def to_home(self, kind: str, pid: int, message: Message | None) -> None:
        home, name = self.home, self.client.name
        self._there = max(self._there, self._world.now + 0.0003 + 0.001 * self._world.random.random())
        self._world.at(
            self._there, lambda: home.process.arrive(lambda: self.is_open and home.receive(name, kind, pid, message))
        )

    def to_client(self, kind: str, pid: int, message: Message | None) -> None:
        self._back = max(self._back, self._world.now + 0.0003 + 0.001 * self._world.random.random())
        self._world.at(self._back, lambda: self.client.receive(self, kind, pid, message) if self.is_open else None)

    def close_from_home(self) -> None:
        """The client learns of it a little later."""
        self.home.detach(self.client.name, self)
        self._world.soon(0.0005, 0.003, lambda: self.client.closed(self))

    def close_from_client(self) -> None:
        self.is_open = False
        home, name = self.home, self.client.name
        self._world.after(0.001, lambda: home.process.arrive(lambda: home.detach(name, self)))


class Client:
    def __init__(self, world: World, site: Any, name: str) -> None:
        self.world = world
        self.site = site
        self.name = name
        self.link: Link | None = None
        self.is_connected = False
        self.to_send: list[Message] = []
        self.in_flight: list[tuple[Message, bool]] = []  # the message, and whether PUBREC has come
        self.acknowledged: set[int] = set()
        self.got: list[Message] = []
        self._numbers: set[int] = set()
        self._highest: dict[tuple[str, int], int] = {}
        self._open: set[int] = set()
        self._heard_at = 0.0
        self._away_until = 0.0
        world.soon(0.05, 0.2, self._look)

    def publish(self, message: Message) -> None:
        self.to_send.append(message)
        self._send()

    def leave(self, until: float) -> None:
        """The client goes away; it comes back at that time."""
        self._away_until = until
        if self.link is not None:
            self.link.close_from_client()
            self.closed(self.link)

    # -- connection ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Now and then: is there a connection, and does it answer?"""
        if self.link is not None and self.is_waiting and self.world.now - self._heard_at > PATIENCE_S:
            self.link.close_from_client()
            self.link = None
        if self.link is None and self.world.now >= self._away_until:
            self._connect()
        self.world.soon(0.05, 0.15, self._look)

    def _connect(self) -> None:
        homes = self.site.serving(self.site.shard_of(self.name))
        if homes:
            home = self.world.random.choice(homes)
            self.link = link = Link(self, home)
            self.is_connected, self._heard_at = False, self.world.now
            self.world.soon(0.0005, 0.002, lambda: home.process.arrive(lambda: self._arrive(home, link)))

    def _arrive(self, home: Home, link: Link) -> None:
        if home.is_serving and link.is_open:
            home.attach(link, self.name)
        else:
            self.world.soon(0.0005, 0.002, lambda: self.closed(link))

    def closed(self, link: Link) -> None:
        link.is_open = False
        if self.link is link:
            self.link, self.is_connected = None, False

    # -- packets -------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        if not self.is_connected or self.link is None:
            return
        while self.to_send:
            used = {message.pid for message, _ in self.in_flight}
            free = [pid for pid in PACKET_IDS if pid not in used]
            if not free:
                return
            message = self.to_send.pop(0)._replace(pid=free[0])
            self.in_flight.append((message, False))
            self.link.to_home("publish", message.pid, message)

    def receive(self, link: Link, kind: str, pid: int, message: Message | None) -> None:
        if link is not self.link:
            return
        self._heard_at = self.world.now
        match kind:
            case "connected":
                self.is_connected = True
                for flying, is_received in self.in_flight:
                    link.to_home("pubrel" if is_received else "publish", flying.pid, flying)
                self._send()
            case "puback" | "pubrec":
                assert message is not None
                self._stored(link, kind, message)
            case "pubcomp":
                self.in_flight = [item for item in self.in_flight if item[0].pid != pid or not item[1]]
                self._send()
            case "publish":
                assert message is not None
                if message.qos == 1:
                    self._take(message)
                    link.to_home("puback", pid, None)
                else:
                    if pid not in self._open:
                        self._open.add(pid)
                        self._take(message)
                    link.to_home("pubrec", pid, None)
            case "pubrel":
                self._open.discard(pid)
                link.to_home("pubcomp", pid, None)

    def _stored(self, link: Link, kind: str, message: Message) -> None:
        for at, (flying, is_received) in enumerate(self.in_flight):
            if flying.pid != message.pid or flying.qos != (1 if kind == "puback" else 2):
                continue
            self.acknowledged.add(flying.number)
            if kind == "puback":
                del self.in_flight[at]
                self._send()
            elif not is_received:
                self.in_flight[at] = (flying, True)
                link.to_home("pubrel", flying.pid, None)
            return

    def _take(self, message: Message) -> None:
        """A message for the application."""
        self.got.append(message)
        if message.number in self._numbers:
            if message.qos == 2:
                raise Violation(f"{self.name} got {message} twice")
            return
        self._numbers.add(message.number)
        sender = message.sender, message.qos
        if message.number < self._highest.get(sender, -1):
            raise Violation(f"{self.name} got {message} after {self._highest[sender]}")
        self._highest[sender] = message.number

    @property
    def is_waiting(self) -> bool:
        """Whether its connection should say something soon."""
        return bool(self.in_flight) or not self.is_connected

    @property
    def is_idle(self) -> bool:
        return not self.to_send and not self.in_flight

    def has(self, number: int) -> bool:
        return number in self._numbers
