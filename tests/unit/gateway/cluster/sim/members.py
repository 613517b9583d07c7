"""Clients that are members of share groups, and what must hold of what they get."""

from math import inf
from typing import Any

from gateway.shard.messages import GROUP_MARK
from schemas.envelope import Incarnation
from schemas.identity import shard_of
from tests.unit.gateway.cluster.sim.client import Client, Link
from tests.unit.gateway.cluster.sim.session import Message
from tests.unit.gateway.cluster.sim.world import Violation, World

WINDOW = 4


class Member(Client):
    """`is_clean`: its next connection begins a new session. `gone_at`: when it left for good. `is_subscribed`: SUBACK
    has come, in this session."""

    def __init__(self, world: World, site: Any, name: str) -> None:
        self.is_clean = False
        self.is_subscribed = False
        self.gone_at = inf
        super().__init__(world, site, name)

    @property
    def is_waiting(self) -> bool:
        return super().is_waiting or not self.is_subscribed

    @property
    def is_idle(self) -> bool:
        return self.is_subscribed or self.gone_at < inf

    def begin_anew(self) -> None:
        """It comes back with a new session."""
        self.is_clean = True
        self.leave(0.0)

    def go(self) -> None:
        """It never comes back, and its session stays."""
        self.gone_at = self.world.now
        self.leave(inf)

    def unsubscribe(self) -> None:
        if self.is_connected and self.is_subscribed and self.link is not None:
            self.is_subscribed = False
            self.link.to_home("unsubscribe", 0, None)

    def receive(self, link: Link, kind: str, pid: int, message: Message | None) -> None:
        if link is not self.link:
            return
        match kind:
            case "connected":
                if self.is_clean:
                    self.is_clean = self.is_subscribed = False
                    self._open.clear()
                super().receive(link, kind, pid, message)
                if not self.is_subscribed:
                    link.to_home("subscribe", 0, None)
            case "suback":
                self._heard_at = self.world.now
                self.is_subscribed = True
                self.site.groups.subscribed(self.name)
            case "unsuback":
                link.to_home("subscribe", 0, None)
            case _:
                super().receive(link, kind, pid, message)

    def _take(self, message: Message) -> None:
        """Messages of a group have no order across its members."""
        self.got.append(message)
        self._numbers.add(message.number)
        self.site.groups.taken(message, self.name)


class Groups:
    """One group in each shard, members in any: all belong to both. The `steady` ones never end their sessions, nor
    leave the groups, so that no group ends.

    `assigned` has to which sessions a message was assigned at QoS 2, and when: with such a session it may end
    [MQTT-4.8.2-5].
    """

    window = WINDOW

    def __init__(self, shards: int) -> None:
        self.topics = [f"g{shard}" for shard in range(shards)]
        self.names = [_name(GROUP_MARK + "$share/{}/" + topic, n, shards) for n, topic in enumerate(self.topics)]
        self.names = [name.removeprefix(GROUP_MARK) for name in self.names]
        self.steady = [_name(f"m{shard}s{{}}", shard, shards) for shard in range(shards)]
        self.fickle = [_name(f"m{shard}f{{}}", shard, shards) for shard in range(shards)]
        self._assigned: dict[int, list[tuple[str, Incarnation, float]]] = {}
        self._ended: set[tuple[str, Incarnation]] = set()
        self._taken: dict[int, str] = {}
        self._subscribed: set[str] = set()

    @property
    def have_begun(self) -> bool:
        """Whether nothing that is published from now on may be lost."""
        return not self._subscribed.isdisjoint(self.steady)

    def subscribed(self, client: str) -> None:
        self._subscribed.add(client)

    def assigned(self, number: int, client: str, session: Incarnation, now: float) -> None:
        self._assigned.setdefault(number, []).append((client, session, now))

    def ended(self, client: str, session: Incarnation) -> None:
        self._ended.add((client, session))

    def taken(self, message: Message, client: str) -> None:
        if message.qos == 2 and message.number in self._taken:
            raise Violation(f"{client} got {message} of a group, which {self._taken[message.number]} has got")
        self._taken[message.number] = client

    def may_be_lost(self, number: int, gone: dict[str, float]) -> bool:
        """Whether a session has taken a message at QoS 2 with it: it is over, or its client left for good later."""
        return any(
            (client, session) in self._ended or at <= gone.get(client, -1.0)
            for client, session, at in self._assigned.get(number, ())
        )


def _name(pattern: str, shard: int, shards: int) -> str:
    """The first name of a pattern that is in a shard."""
    return next(name for name in map(pattern.format, range(1_000)) if shard_of(name, shards) == shard)
