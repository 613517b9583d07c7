"""A client's message on its way to Kafka, until the client has its answer."""

from collections.abc import Callable

import msgspec

from mqtt.codes import ReasonCode
from schemas.envelope import BundleMark


class PendingPublish(msgspec.Struct, eq=False, gc=False):
    """A publish to be answered: `stores` counts the records still to be stored (`ingress`, and perhaps `retained`, and
    on `progress` that a receipt is asked for), and then the barrier behind them; `size` is that of topic, payload and
    properties, bytes. If it is `ingress_last`, what stands on `ingress` needs no further work: whoever finds it there
    may call it stored. It `has_copy` once that one on `retained` is sent, unless it is refused. `bundle`: in which one
    of the client's it came. `on_ingress` runs in the step in which the position on `ingress` passes it."""

    packet_id: int
    qos: int
    stores: int
    reason: ReasonCode = ReasonCode.SUCCESS
    size: int = 0
    then: Callable[[ReasonCode], None] | None = None
    ingress_last: bool = False
    has_copy: bool = False
    bundle: BundleMark | None = None
    on_ingress: Callable[[], None] | None = None
