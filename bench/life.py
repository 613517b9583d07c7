"""What messages leave on Kafka when a fleet of devices sends them: records for measurements of the ledger.

Each message is wanted by one shard and delivered to one client; payloads are random, so nothing compresses them.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.envelope import Headers, Instruction, Meta, ingress_headers
from schemas.events import CompletionEvent, Delivery, PresenceEvent, ProgressEvent, RouteEvent, encode
from schemas.identity import new_message_id

PAYLOAD_BYTES = 256
INTERVAL_MS = 5
ROUTERS = (b"active", b"backup")
SENDERS = 5000


class Written(NamedTuple):
    """A record. `number` is that of the message, `topic` without prefix, `at_ms` its append time; `is_copy` of what the
    second router has written."""

    number: int
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    at_ms: int
    headers: Headers | None = None
    is_copy: bool = False


def life(numbers: Iterable[int], partitions: int, shards: int, begin_ms: int) -> Iterator[Written]:
    """The records of these messages, one sent every INTERVAL_MS from `begin_ms` on: a coming and a route for each, too.
    Records of a topic in the order of their offsets, `partitions` for all but `egress`, which has `shards`."""
    for n in numbers:
        now_ms = begin_ms + INTERVAL_MS * n
        message, source, client = new_message_id(), f"truck-{n * 7919 % SENDERS:05}", f"dashboard-{n % 200:03}"
        partition, offset, shard = n % partitions, n // partitions, n % shards
        headers = ingress_headers(message, source, Meta(1, "", None, now_ms * 1000, None), b"")
        destination, key = f"fleet/{n % 40}/{source}/position".encode(), message.encode()
        payload = os.urandom(PAYLOAD_BYTES)
        yield Written(n, "ingress", partition, offset, destination, payload, now_ms, headers)
        instruction = Instruction(partition, offset, 0, 1, now_ms).encode()
        for copy, router in enumerate(ROUTERS):
            routed = [*headers, ("instr", instruction), ("router", router)]
            at = (shard, n // shards * len(ROUTERS) + copy)
            yield Written(n, "egress", *at, destination, payload, now_ms + 2, routed, copy > 0)
        delivery = Delivery(client=client, outcome="delivered", qos=1, at_us=now_ms * 1000 + 3457)
        place = {"partition": partition, "offset": offset, "appended_ms": now_ms}
        done = ProgressEvent(
            kind="relinquish", id=message, shard=shard, number=0, limit=1, deliveries=[delivery], **place
        )
        yield Written(n, "progress", partition, offset, key, encode(done), now_ms + 5)
        whole = CompletionEvent(id=message, touches=1, appended_ms=now_ms, completed_ms=now_ms + 5)
        yield Written(n, "completion", partition, offset, key, encode(whole), now_ms + 900)
        came = PresenceEvent(
            client=source,
            event="connected",
            gateway="gateway-1",
            epoch=now_ms * 1000,
            seq=1,
            at_us=now_ms * 1000,
            peer=f"10.0.{n % 250}.{n % 199}:{30000 + n % 20000}",
            protocol="mqtt5",
            user=source,
        )
        yield Written(n, "presence", partition, offset, source.encode(), encode(came), now_ms)
        wanted = RouteEvent(op="add", route_key=f"fleet/{n}", shard=shard)
        yield Written(n, "routes", 0, n, wanted.kafka_key.encode(), encode(wanted), now_ms)
