"""Topic aliases from the server to a client (MQTT 5.0, 3.3.2.3.4): a short number for a topic name sent before."""

ALIAS_PROPERTY = b"\x23"


class OutboundAliases:
    """The aliases of one connection, `maximum` at most, as the client's CONNECT allows (3.1.2.11.5). The newest topics
    have one: when all are taken, the one given longest ago is given anew."""

    __slots__ = ("_given", "_maximum", "_next", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._given: dict[str, bytes] = {}
        self._topics: list[str] = []
        self._next = 0

    def property_of(self, topic: str) -> tuple[bytes, bool]:
        """The property that a PUBLISH to `topic` carries, and whether the client knows the alias already: then the
        topic name is left out. A new one has to be :meth:`sent`, or is forgotten."""
        known = self._given.get(topic)
        if known is not None:
            return known, True
        return ALIAS_PROPERTY + (self._next + 1).to_bytes(2), False

    def sent(self, topic: str) -> None:
        """The PUBLISH that makes the alias of `topic` known is on its way."""
        if len(self._topics) < self._maximum:
            self._topics.append(topic)
        else:
            del self._given[self._topics[self._next]]
            self._topics[self._next] = topic
        self._given[topic] = ALIAS_PROPERTY + (self._next + 1).to_bytes(2)
        self._next = (self._next + 1) % self._maximum
