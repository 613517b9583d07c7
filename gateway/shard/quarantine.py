"""Records a gateway cannot parse: to the topic `quarantine`, with the reason."""

import base64
from typing import Any

import structlog

from gateway.record import Record
from gateway.shard.node import Node
from schemas.events import QuarantineEvent, encode

_KEPT_BYTES = 64 * 1024
_REASON_CHARACTERS = 1_000
"""A reason may quote what is malformed, which may be as large as a record is."""

log = structlog.get_logger(__name__)


def quarantine(node: Node, record: Record, reason: str) -> None:
    """Reports a bad record and goes on; failing to report is fatal, for the record would be lost silently."""
    topic, partition, offset = record.topic() or "", record.partition(), record.offset()
    reason = reason[:_REASON_CHARACTERS]
    node.counts["quarantined"] += 1
    log.warning("record quarantined", topic=topic, partition=partition, offset=offset, reason=reason)
    event = QuarantineEvent(
        topic=topic,
        partition=partition,
        offset=offset,
        reason=reason,
        record=base64.b64encode((record.value() or b"")[:_KEPT_BYTES]).decode(),
        at_us=int(node.clock() * 1e6),
        appended_ms=record.timestamp()[1],
    )

    def done(error: Any, _record: Any) -> None:
        if error is not None:
            node.on_fatal(RuntimeError(f"cannot quarantine a bad record of {topic}: {error.str()}"))

    node.bus.produce(node.topics.quarantine, 0, topic.encode(), encode(event), None, done)
