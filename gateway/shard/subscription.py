"""A subscription of a session, and how it gets a message on `ingress`: directly while its route is not in effect, by an
instruction from then on."""

from collections.abc import Sequence

import msgspec

from gateway.shard.messages import PendingMessage, Release
from schemas.session_log import SubscriptionRecord


class SessionSubscription(msgspec.Struct):
    """A subscription of a session; the fields are those of :class:`schemas.session_log.SubscriptionRecord`."""

    client: str
    record: SubscriptionRecord

    @property
    def filter(self) -> str:
        return self.record.filter

    def is_older(self, partition: int, offset: int) -> bool:
        """Whether the subscription was there before what is at this place on `ingress`."""
        start = self.record.ingress_from.get(partition)
        return start is not None and start <= offset

    def continues(self, earlier: "SessionSubscription") -> bool:
        """Whether it is `earlier`, or has replaced it: then it began where that one did [MQTT-3.8.4-3]."""
        if self is earlier:
            return True
        mine, its = self.record, earlier.record
        return (mine.effective_ms, mine.ingress_from, mine.merged_from) == (
            its.effective_ms,
            its.ingress_from,
            its.merged_from,
        )


def get_by_instruction(
    pending: PendingMessage, subscriptions: Sequence[SessionSubscription]
) -> list[SessionSubscription]:
    """Those of matching subscriptions that get the message of an instruction: their route is in effect for it, or a
    newer subscription of their client has left it to them."""
    message = pending.message
    appended, partition, offset = message.appended, message.partition, message.offset
    left = pending.left
    return [
        s
        for s in subscriptions
        if (s.record.effective_ms <= appended and s.record.ingress_from.get(partition, 0) <= offset)
        or (left and s.client in left and s.is_older(partition, offset))
    ]


def get_merged(release: Release, subscriptions: Sequence[SessionSubscription]) -> list[SessionSubscription]:
    """Those of matching subscriptions that get what the merge of a redundant feed lets go."""
    return [s for s in subscriptions if s.record.merged_from <= release.position]


def divide(
    subscriptions: Sequence[SessionSubscription],
    place: tuple[int, int, int],
    done_ms: int,
    newer: list[SessionSubscription],
    routed: set[str],
) -> None:
    """Of subscriptions that match what is at `place` (partition, offset, append time) on `ingress`: adds to `newer`
    those that may get it directly, their route being not in effect yet, nor by `done_ms`; to `routed` the clients of
    those that an instruction brings it."""
    partition, offset, appended = place
    for subscription in subscriptions:
        record = subscription.record
        if record.effective_ms <= appended:
            if record.ingress_from.get(partition, 0) <= offset:
                routed.add(subscription.client)
        elif record.effective_ms > done_ms and subscription.is_older(partition, offset):
            newer.append(subscription)
