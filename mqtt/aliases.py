"""Topic aliases (MQTT 5.0, 3.3.2.3.4): short numbers that replace topic names sent before, in either direction."""

from collections.abc import Mapping

from mqtt.codes import ReasonCode
from mqtt.connection_state import OutboundAliasState
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Properties, Publish
from mqtt.wire import protocol_error

ALIAS_PROPERTY = b"\x23"


class OutboundAliases:
    """The aliases of one connection, at most `maximum`, as the receiver allows (3.1.2.11.5, 3.2.2.3.8). When all are in
    use, a new topic takes over the alias assigned longest ago."""

    __slots__ = ("_given", "_maximum", "_next", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._given: dict[str, bytes] = {}
        self._topics: list[str] = []
        self._next = 0

    @classmethod
    def resumed(cls, state: OutboundAliasState) -> "OutboundAliases | None":
        """Those that a client knows, and room for more; None if it takes none, or if the state is none that could be:
        no client is wronged by topics in full."""
        if not state.maximum or len(state.topics) > state.maximum or len(set(state.topics)) < len(state.topics):
            return None
        aliases = cls(state.maximum)
        for topic in state.topics:
            aliases.sent(topic)
        if len(state.topics) == state.maximum:
            aliases._next = state.next % state.maximum
        return aliases

    def state(self) -> OutboundAliasState:
        """For :meth:`resumed`."""
        return OutboundAliasState(self._maximum, list(self._topics), self._next)

    def property_of(self, topic: str) -> tuple[bytes, bool]:
        """The property for a PUBLISH to `topic`, and whether the receiver already knows the alias: then leave the topic
        name out. A new alias is forgotten unless :meth:`sent` is called."""
        known = self._given.get(topic)
        if known is not None:
            return known, True
        return ALIAS_PROPERTY + (self._next + 1).to_bytes(2), False

    def sent(self, topic: str) -> None:
        """The PUBLISH that defines the alias of `topic` has been sent."""
        if len(self._topics) < self._maximum:
            self._topics.append(topic)
        else:
            del self._given[self._topics[self._next]]
            self._topics[self._next] = topic
        self._given[topic] = ALIAS_PROPERTY + (self._next + 1).to_bytes(2)
        self._next = (self._next + 1) % self._maximum


class InboundAliases:
    """The aliases that the peer of one connection has defined, at most `maximum`, as this side allows. `topics` are
    those that it defined before the connection came to this process."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int, topics: Mapping[int, str] | None = None) -> None:
        self._maximum = maximum
        self._topics = dict(topics) if topics else None  # few connections ever use one

    @property
    def topics(self) -> dict[int, str]:
        """By alias."""
        return dict(self._topics or {})

    def resolve(self, packet: Publish, properties: Properties) -> None:
        """Replaces an alias by the full topic and removes it from `properties`, which are those of `packet`."""
        alias = properties.pop("topic_alias", None)
        if alias is None:
            return
        if not properties:
            packet.properties = None
        if alias > self._maximum:
            detail = f"topic alias {alias} is above {self._maximum}"
            raise RemoteProtocolError(ReasonCode.TOPIC_ALIAS_INVALID, detail)  # [MQTT-3.3.2-9]
        if self._topics is None:
            self._topics = {}
        if packet.topic:
            self._topics[alias] = packet.topic
            return
        topic = self._topics.get(alias)
        if topic is None:
            raise protocol_error(f"topic alias {alias} was never set")
        packet.topic = topic
