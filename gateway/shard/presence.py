"""Presence events on the topic `presence`: of clients, and that the gateway itself is alive (R12, G2)."""

from typing import Any, Literal

import structlog

from gateway.shard.arrivals import REPLY_INBOX
from gateway.shard.node import Node
from gateway.shard.session import Session
from schemas.events import PresenceEvent, encode
from schemas.identity import partition_of

log = structlog.get_logger(__name__)


class PresenceReporter:
    """Writes who came and went; (`epoch`, `seq`) orders a client's events, the process's `boot` tells this process from
    earlier ones of the same name."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._gateway = node.settings.gateway.name
        self._heartbeats = 0
        self._partitions = node.settings.kafka.ingress_partitions
        self._log = log.info if node.settings.gateway.connection_log == "info" else log.debug

    def report(
        self,
        session: Session,
        event: Literal["connected", "disconnected", "lost"],
        *,
        peer: str = "",
        protocol: str = "",
        reason: str = "",
    ) -> None:
        """Writes the event; nothing for an inbox of replies."""
        if session.protocol == REPLY_INBOX:
            return
        presence = PresenceEvent(
            client=session.client,
            event=event,
            gateway=self._gateway,
            epoch=session.epoch,
            seq=session.next_event(),
            at_us=int(self._node.clock() * 1e6),
            peer=peer,
            protocol=protocol,
            reason=reason,
            user=session.user,
            boot=self._node.numbers.boot,
        )
        self._log(f"client {event}", client=session.client, peer=session.peer, user=session.user, reason=reason)
        self._node.counts[f"presence_{event}"] += 1
        self._write(presence)

    def heartbeat(self, event: Literal["heartbeat", "disconnected"] = "heartbeat") -> None:
        """Says that the gateway is alive, or that it ends."""
        at_us, boot = int(self._node.clock() * 1e6), self._node.numbers.boot
        number, self._heartbeats = self._heartbeats, self._heartbeats + 1
        beat = PresenceEvent(
            client="", event=event, gateway=self._gateway, epoch=boot, seq=number, at_us=at_us, boot=boot
        )
        self._write(beat)

    def _write(self, event: PresenceEvent) -> None:
        partition, topic = partition_of(event.kafka_key, self._partitions), self._node.topics.presence
        self._node.bus.produce(topic, partition, event.kafka_key.encode(), encode(event), None, _stored)


def _stored(error: Any, _record: Any) -> None:
    if error is not None:
        log.error("Kafka refused a presence event", reason=error.str())
