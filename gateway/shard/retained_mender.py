"""Writing fences to `retained`, and mending what void records have overwritten there: see
:mod:`gateway.shard.retained_fences`."""

from typing import Any

import structlog

from gateway.shard.messages import Message
from gateway.shard.node import Node
from gateway.shard.retained_fences import MEND_HEADER, Written, fence_key
from schemas.envelope import Headers, Meta, ingress_headers

log = structlog.get_logger(__name__)


class RetainedMender:
    """Mends for one shard, and removes its old fences; call it every second or so. `epoch` is that of the home."""

    def __init__(self, node: Node, shard: int) -> None:
        self._node = node
        self._shard = shard
        self._written: dict[str, int] = {}

    def run(self, epoch: int) -> None:
        fences, bus, topic = self._node.retained.fences, self._node.bus, self._node.topics.retained
        if fences is None or not epoch:
            return
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

    def _stored(self, error: Any, _record: Any) -> None:
        if error is not None:
            self._written.clear()  # the next time, perhaps
            log.warning("cannot mend retained messages", shard=self._shard, reason=error.str())


def _headers(message: Message | None, mend: Written) -> Headers:
    """Of a record that is written again: of the same message."""
    if message is None:
        return [*ingress_headers("", "", Meta(0, "", None, 0, None), b"\0"), (MEND_HEADER, mend.encode())]
    meta = Meta(message.qos, message.flags, message.expires, message.appended * 1000, None, bundle=message.bundle)
    headers = ingress_headers(message.id, message.source, meta, message.properties)
    return [*headers, (MEND_HEADER, mend.encode())]
