"""The subscriptions a server has granted, so that the client can subscribe again if the server loses the session."""

from collections.abc import Iterable, Sequence
from typing import Final

from edge.errors import SubscribeRefused
from mqtt.codes import ReasonCode
from mqtt.packets import Properties, Suback, Subscription, Unsuback

TOGETHER_MAX: Final = 100
"""Filters of one SUBSCRIBE: all of them may be more than a packet may have, or a server accepts in one."""

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


class Subscriptions:
    """Subscriptions by topic filter, each as last requested."""

    def __init__(self) -> None:
        self._granted: dict[str, tuple[Subscription, Properties | None]] = {}
        self._missing: set[str] = set()  # granted by a session that is lost, and not by the present one yet

    def granted(self, wanted: Sequence[Subscription], properties: Properties | None, answer: Suback | Unsuback) -> None:
        """Stores the granted ones; raises SubscribeRefused if one is refused."""
        reasons: dict[str, ReasonCode] = {}
        for subscription, reason in zip(wanted, answer.reason_codes, strict=True):
            reasons[subscription.filter] = reason
            if reason < _FAILURE:
                self._granted[subscription.filter] = (subscription, properties)
                self._missing.discard(subscription.filter)
        if any(reason >= _FAILURE for reason in answer.reason_codes):
            raise SubscribeRefused(reasons, answer.properties)

    def remove(self, filters: Iterable[str]) -> None:
        """Forgets these filters."""
        for topic_filter in filters:
            self._granted.pop(topic_filter, None)
            self._missing.discard(topic_filter)

    def lost(self) -> None:
        """The server has lost the session, and all of them with it."""
        self._missing.update(self._granted)

    def missing(self) -> list[tuple[list[Subscription], Properties | None]]:
        """The subscriptions that the server has not granted since it lost the session, one group per SUBSCRIBE:
        consecutive ones with the same properties go together, 100 at most."""
        packets: list[tuple[list[Subscription], Properties | None]] = []
        if not self._missing:
            return packets
        for topic_filter, (subscription, properties) in self._granted.items():
            if topic_filter not in self._missing:
                continue
            if not packets or packets[-1][1] != properties or len(packets[-1][0]) == TOGETHER_MAX:
                packets.append(([], properties))
            packets[-1][0].append(subscription)
        return packets
