"""Presence events of clients on the topic `presence` (R12)."""

from typing import Any, Literal

import structlog

from gateway.home.context import HomeContext
from gateway.home.session import Session
from schemas.events import PresenceEvent, encode
from schemas.identity import partition_of

log = structlog.get_logger(__name__)


class PresenceReporter:
    """Writes who came and went; (`epoch`, `seq`) orders a client's events."""

    def __init__(self, context: HomeContext) -> None:
        self._context = context
        self._partitions = context.settings.kafka.ingress_partitions
        self._log = log.info if context.settings.gateway.connection_log == "info" else log.debug

    def report(
        self,
        session: Session,
        event: Literal["connected", "disconnected", "lost"],
        *,
        peer: str = "",
        protocol: str = "",
        reason: str = "",
    ) -> None:
        presence = PresenceEvent(
            client=session.client,
            event=event,
            gateway=self._context.settings.gateway.name,
            epoch=session.epoch,
            seq=session.events,
            at_us=int(self._context.clock() * 1e6),
            peer=peer,
            protocol=protocol,
            reason=reason,
            user=session.user,
        )
        session.events += 1
        self._log(f"client {event}", client=session.client, peer=session.peer, user=session.user, reason=reason)
        self._context.counts[f"presence_{event}"] += 1
        partition = partition_of(session.client, self._partitions)
        topic = self._context.topics.presence
        self._context.bus.produce(topic, partition, session.client.encode(), encode(presence), None, _stored)


def _stored(error: Any, _record: Any) -> None:
    if error is not None:
        log.error("presence event refused by Kafka", reason=error.str())
