"""A subscription of a session, and which messages on `ingress` are for it."""

import msgspec

from schemas.session_log import SubscriptionRecord


class SessionSubscription(msgspec.Struct):
    """A subscription of a session; the fields are those of :class:`schemas.session_log.SubscriptionRecord`."""

    client: str
    record: SubscriptionRecord

    @property
    def filter(self) -> str:
        return self.record.filter

    def is_routed(self, partition: int, offset: int, appended: int) -> bool:
        """Whether the subscription gets what is at this place on `ingress` by an instruction."""
        return self.record.effective_ms <= appended and self.record.ingress_from.get(partition, 0) <= offset

    def is_older(self, partition: int, offset: int) -> bool:
        """Whether the subscription was there before what is at this place on `ingress`."""
        start = self.record.ingress_from.get(partition)
        return start is not None and start <= offset
