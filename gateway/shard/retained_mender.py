"""Mending what void records have overwritten on `retained`, and removing old fences there: see
:mod:`gateway.shard.retained_fences`. And ending what has expired: it counts for the limits until then.

The home of the shard of a message's sender ends it, with a tombstone. Somebody may publish to the topic meanwhile.
Where gateways share the shards, the tombstone is a mend of the expired message, so it counts only if that is still the
last record of the topic. Without other gateways there is only what this one has written and not folded yet; it waits
for that.
"""

from itertools import islice
from typing import Any

import structlog

from gateway.shard.messages import Message
from gateway.shard.node import Node
from gateway.shard.retained_fences import MEND_HEADER, Written, fence_key
from schemas.envelope import Headers, Meta, ingress_headers

_AT_ONCE = 1_000
"""Expired messages that are ended in one run."""

log = structlog.get_logger(__name__)


class RetainedMender:
    """Mends and ends for one shard, and removes its old fences; call it every second or so. `epoch` is that of the
    home."""

    def __init__(self, node: Node, shard: int) -> None:
        self._node = node
        self._shard = shard
        self._written: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def run(self, epoch: int) -> None:
        fences, bus, topic = self._node.retained.fences, self._node.bus, self._node.topics.retained
        if fences is None:
            self._end_expired(None)
            return
        if not epoch:
            return
        self._end_expired(epoch)
        unmended = fences.unmended(self._shard)
        self._written = {key: at for key, at in self._written.items() if key in unmended}
        for key, found in unmended.items():
            if self._written.get(key) == found.offset:
                continue  # on its way
            self._written[key] = found.offset
            message, mend = self._node.retained.find(key), Written(self._shard, epoch, found.offset)
            payload = None if message is None else message.payload
            bus.produce(topic, 0, key.encode(), payload, _headers(message, mend), self._stored)
        for earlier in fences.removable(self._shard, int(self._node.clock() * 1000)):
            bus.produce(topic, 0, fence_key(self._shard, earlier).encode(), None, None, self._stored)

    def _end_expired(self, epoch: int | None) -> None:
        """`epoch`: None if no other gateway writes to the topic."""
        node = self._node
        expired = node.retained.expired(self._shard, int(node.clock() * 1000))
        self._ended = {t: at for t, at in self._ended.items() if expired.get(t) == at}  # on their way
        for topic, offset in islice((one for one in expired.items() if one[0] not in self._ended), _AT_ONCE):
            self._ended[topic] = offset
            headers = None if epoch is None else _headers(None, Written(self._shard, epoch, offset))
            node.bus.produce(node.topics.retained, 0, topic.encode(), None, headers, self._stored)

    def _stored(self, error: Any, _record: Any) -> None:
        if error is not None:
            self._written.clear()  # the next time, perhaps
            self._ended.clear()
            log.warning("cannot mend retained messages", shard=self._shard, reason=error.str())


def _headers(message: Message | None, mend: Written) -> Headers:
    """Of a record that is written again: of the same message."""
    if message is None:
        return [*ingress_headers("", "", Meta(0, "", None, 0, None), b"\0"), (MEND_HEADER, mend.encode())]
    meta = Meta(message.qos, message.flags, message.expires, message.appended * 1000, None, bundle=message.bundle)
    headers = ingress_headers(message.id, message.source, meta, message.properties)
    return [*headers, (MEND_HEADER, mend.encode())]
