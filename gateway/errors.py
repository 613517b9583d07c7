"""Errors of the gateway.

WaystationError
└── GatewayError
    ├── BusError              Kafka refused something, and a retry will not help
    ├── ClusterError          what is asked of the cluster cannot be done; the text says why
    ├── SpoolError            the SQLite spool cannot be opened or written
    │   └── SpoolDamaged      what its file has is no spool
    ├── ShardTooNew           a later release has written state of a shard that this one cannot read: do not serve it
    ├── FeedConflict          what is asked of a feed contradicts its state; `reason` is a word for programs
    ├── FeedLimitReached      as many subscribers or administrative messages as allowed are known
    ├── NotAdmitted           a client is refused: send it `reason`
    │   └── ShardLost         another gateway has the client's shard by now: nothing promised here will hold
    ├── HomeUnreachable       the gateway that has a client's shard does not answer
    ├── LinkProtocolError     the other side of a link sends what no gateway would: close it
    ├── Outranked             another gateway has fenced a shard in this gateway's epoch, or a higher one
    ├── SocketsError          sockets cannot pass to another process of this machine; the text says why
    └── ProxyHeaderError      a proxy sent a missing or wrong header about its client: close the connection
"""

from mqtt.codes import ReasonCode
from schemas.errors import WaystationError


class GatewayError(WaystationError):
    """Base of all errors raised by the gateway."""


class BusError(GatewayError):
    """Kafka refused something, and a retry will not help: a missing topic, no authorisation."""


class ClusterError(GatewayError):
    """An operator asks for a change of owner that cannot be; the text says why."""


class SocketsError(GatewayError):
    """Sockets cannot pass to another process of this machine; the text says why."""


class SpoolError(GatewayError):
    """The spool cannot be opened, read or written; the text names the file and the cause."""


class SpoolDamaged(SpoolError):
    """What the file of a spool has is damaged, or none of its kind: another file would do."""


class ShardTooNew(GatewayError):
    """State of the shard `shard` has a version that only a later release reads. Whoever served the shard without it
    would lose it."""

    def __init__(self, shard: int, topic: str, detail: str) -> None:
        super().__init__(
            f"shard {shard} cannot be served by this release: a later one has written to the topic {topic}: {detail}"
        )
        self.shard = shard


class FeedConflict(GatewayError):
    """What is asked of a redundant feed contradicts its state. `reason` is a word for programs."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class FeedLimitReached(GatewayError):
    """As many subscribers or administrative messages of redundant feeds as allowed are known."""


class NotAdmitted(GatewayError):
    """The client is refused, altogether or for this session; `reason` goes into CONNACK."""

    def __init__(self, reason: ReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ShardLost(NotAdmitted):
    """Another gateway has taken the shard `shard`: what this one has promised, and not kept yet, it never will. For a
    client that waits it is what a shard that has moved is: it goes to its new home (0x9C)."""

    def __init__(self, shard: int) -> None:
        super().__init__(ReasonCode.USE_ANOTHER_SERVER, f"another gateway has taken shard {shard}")
        self.shard = shard


class LinkProtocolError(GatewayError):
    """The other side of a link between gateways sends what no gateway would."""


class Outranked(GatewayError):
    """In front of this gateway's own fence of `shard`, in `epoch`, stands one of the same epoch or a higher one."""

    def __init__(self, shard: int, epoch: int, fence: int) -> None:
        """`fence`: the highest epoch that was read."""
        super().__init__(f"shard {shard} cannot begin in epoch {epoch}: it has a fence of epoch {fence} already")
        self.shard = shard
        self.epoch = epoch
        self.fence = fence


class ProxyHeaderError(GatewayError):
    """A proxy identified its client wrongly or, if `is_missing`, not at all."""

    def __init__(self, detail: str, *, is_missing: bool = False) -> None:
        super().__init__(detail)
        self.is_missing = is_missing


class HomeUnreachable(GatewayError):
    """Another gateway has the client's shard, and does not answer, or not to the end."""
