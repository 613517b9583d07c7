"""The subscriptions a server has granted, so that the client can subscribe again if the server loses the session."""

from collections.abc import Iterable, Sequence
from typing import Final

from edge.errors import SubscribeRefused
from mqtt.codes import ReasonCode
from mqtt.packets import Properties, Suback, Subscription, Unsuback

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


class Subscriptions:
    """Subscriptions by topic filter, each as last requested."""

    def __init__(self) -> None:
        self._granted: dict[str, tuple[Subscription, Properties | None]] = {}

    def granted(self, wanted: Sequence[Subscription], properties: Properties | None, answer: Suback | Unsuback) -> None:
        """Stores the granted ones; raises SubscribeRefused if one is refused."""
        reasons: dict[str, ReasonCode] = {}
        for subscription, reason in zip(wanted, answer.reason_codes, strict=True):
            reasons[subscription.filter] = reason
            if reason < _FAILURE:
                self._granted[subscription.filter] = (subscription, properties)
        if any(reason >= _FAILURE for reason in answer.reason_codes):
            raise SubscribeRefused(reasons, answer.properties)

    def remove(self, filters: Iterable[str]) -> None:
        """Forgets these filters."""
        for topic_filter in filters:
            self._granted.pop(topic_filter, None)

    def together(self) -> list[tuple[list[Subscription], Properties | None]]:
        """All subscriptions, one group per SUBSCRIBE: consecutive ones with the same properties go together."""
        packets: list[tuple[list[Subscription], Properties | None]] = []
        for subscription, properties in self._granted.values():
            if not packets or packets[-1][1] != properties:
                packets.append(([], properties))
            packets[-1][0].append(subscription)
        return packets
