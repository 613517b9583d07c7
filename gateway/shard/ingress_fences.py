"""Fences on `ingress`, as the homes of one gateway write and read them (G6, Q7, Q8; :mod:`gateway.cluster.fencing`).

A gateway that takes over shards writes one fence message to each partition of `ingress`. Every shard has a permanent
route for them. Routers emit the messages of a partition in order, so a home meets a fence before any message behind it,
whichever way both come. The home takes the fence, delivers it to nobody and relinquishes its instruction.

**What a home knows of fences** is part of its shard's position (:class:`gateway.shard.shard.ShardPosition`). It comes
from three places, and any of them may be the first to bring a fence:

* `egress[shard]`, once the shard's route for fences is in effect.
* `ingress`, while the shard's catch-up reader reads it. Until the route is in effect the reader runs for the fences, as
  it does for subscriptions. So nobody waits for the route.
* `ingress` again, at each start: from where publishes of the shard's clients are known to its end. So a shard that
  starts for the first time knows the fences of its elders, although no route of it existed then. Before the first fence
  of a site nothing has an epoch, and what has no epoch is never dropped.

**What is not certain.** A catch-up reader starts at most 4,096 messages before the end of `ingress`. If the routers are
further behind, a fence before that may have come by neither way. Then what an earlier owner sends after the reader has
started goes to new subscriptions although it is void, and comes to them again from the present owner.

**What is not asked again.** A message that was offered to sessions before a restart is offered again without a look at
the fences: it counted when it was read.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from gateway.record import Record
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.messages import Message
from gateway.shard.node import Node
from gateway.shard.quarantine import quarantine
from gateway.shard.retained_fences import fence_key
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from gateway.stored import stored
from mqtt.properties import NO_PROPERTIES
from schemas.cluster_topics import FENCES_TOPIC, VERSION, Fences, decode_fences, encode_fences
from schemas.envelope import Headers, Meta, ingress_headers
from schemas.errors import RecordError
from schemas.identity import is_derived, new_message_id, shard_of
from schemas.origin import CLUSTER_ROOT, HTTP_FLAG, WILL_FLAG

_QOS = 1
FENCES_KEY = FENCES_TOPIC.encode()
"""The key of fence messages on `ingress` and `egress`."""


async def write_ingress_fences(node: Node, owned: Mapping[int, int]) -> None:
    """Writes a fence message with the epochs of the `owned` shards to each partition of `ingress`, then a fence of each
    shard to `retained`; returns once Kafka has all of them. Call it once the fences on `sessions` and `spool` are
    stored. Raises BusError.

    The order: a retained copy is stored before its message on `ingress`. So if that counts, the copy counts too.
    """
    if not owned:
        return
    all_of_them, topics = sorted(owned.items()), node.topics
    partitions = range(node.settings.kafka.ingress_partitions)
    await asyncio.gather(*(_written(node, topics.ingress, p, FENCES_TOPIC, all_of_them) for p in partitions))
    await asyncio.gather(*(_written(node, topics.retained, 0, fence_key(*one), [one]) for one in all_of_them))


def _written(node: Node, topic: str, partition: int, key: str, epochs: list[tuple[int, int]]) -> asyncio.Future[None]:
    value = encode_fences(Fences(VERSION, node.settings.gateway.name, node.numbers.boot, epochs))
    refused = f"cannot write a fence to partition {partition} of {topic}"
    return stored(node.bus, topic, partition, (key.encode(), value, _headers(node)), refused)


def _headers(node: Node) -> Headers:
    meta = Meta(_QOS, "", None, int(node.clock() * 1e6), None)
    return ingress_headers(new_message_id(), CLUSTER_ROOT, meta, NO_PROPERTIES)


class IngressFences:
    """What one shard does with fences, and with messages behind them."""

    def __init__(self, node: Node, shard: Shard) -> None:
        self._node = node
        self._shard = shard
        self._shards = node.settings.kafka.shards

    def read(self, record: Record, place: tuple[int, int]) -> None:
        """Takes a fence message, of `ingress` or of an instruction; `place` is where it stands on `ingress`. Fences may
        come in any order, and more than once. One that is malformed goes to the quarantine."""
        try:
            _take(record, place, self._shards, [self._shard])
        except RecordError as error:
            quarantine(self._node, record, str(error))

    def drops(self, message: Message) -> bool:
        """Whether a message, of `ingress` or of an instruction, is void: then it is offered to nobody."""
        epoch = message.epoch
        if epoch is None:
            return False
        place, shard = (message.partition, message.offset), shard_of(message.source, self._shards)
        is_void = self._shard.fences.is_dropped(*place, shard, epoch, message.qos, is_once(message.id, message.flags))
        self._node.counts["fenced"] += is_void
        return is_void


def note_fences(record: Record, shards: int, states: Sequence[Shard]) -> None:
    """Takes a fence message on `ingress` for some of the `shards` shards. One that is malformed is passed over: whoever
    gets it by an instruction puts it to the quarantine."""
    with contextlib.suppress(RecordError):
        _take(record, (record.partition(), record.offset()), shards, states)


def counts(record: Record, of_sender: Shard) -> bool:
    """Whether a message on `ingress` is not void, as far as the shard of its sender knows."""
    try:
        meta = Meta.decode((record.headers() or [])[2][1])
    except (RecordError, IndexError, AttributeError):
        return True
    if meta.epoch is None:
        return True
    message_id = (record.headers() or [])[0][1].decode(errors="replace")
    place, once = (record.partition(), record.offset()), is_once(message_id, meta.flags)
    return not of_sender.fences.is_dropped(*place, of_sender.number, meta.epoch, meta.qos, once)


def is_once(message_id: str, flags: str) -> bool:
    """Whether a message must not come twice whatever its QoS: its sender is acknowledged once it counts, and not
    before. A will, or one that was posted with a key."""
    return WILL_FLAG in flags or (HTTP_FLAG in flags and is_derived(message_id))


async def use_fences(node: Node, routes: ShardRoutes, reader: IngressCatchUpReader) -> int:
    """Makes sure that the shard has its route for fences, for as long as gateways share the shards. Returns until when
    (ms since the epoch) they come by `ingress` only; 0 if the route is in effect, or nobody needs it. Raises
    BusError."""
    if not node.settings.gateway.cluster.enabled:
        return 0
    effective_ms = (await routes.use(FENCES_TOPIC)).effective_ms
    return (
        effective_ms if reader.is_needed(effective_ms, node.broker_clock.ms(asyncio.get_running_loop().time())) else 0
    )


def _take(record: Record, place: tuple[int, int], shards: int, states: Sequence[Shard]) -> None:
    fences = decode_fences(record.value() or b"")
    if any(shard >= shards for shard, _ in fences.epochs):
        raise RecordError(f"a fence message names a shard that is not below kafka.shards = {shards}")
    for state in states:
        state.fences.read_fence(*place, fences.epochs)
