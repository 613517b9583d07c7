"""A session that attaches for an HTTP client: in the background, so that none is left half set up if the client leaves.

And what has arrived at such a client, as PUBACK and PUBREC would say it (G8).
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from gateway.errors import BusError
from gateway.host.authenticator import NotAdmitted
from gateway.host.host_server import HostServer
from gateway.http.problems import Problem, not_admitted, refusal
from gateway.shard.messages import Delivery
from gateway.shard.session import Session
from gateway.shard.shard_home import Attached, ShardHome
from mqtt.codes import ReasonCode

log = structlog.get_logger(__name__)


async def attached(
    server: HostServer,
    client: str,
    attach: Coroutine[Any, Any, Attached | Problem],
    what: str,
    timeout_s: float,
    late: str,
) -> Attached:
    """The session for `what` the client asks, a word for the log. Raises Problem: that of `attach`, why the gateway
    refuses the session, or, after `timeout_s`, 503 with the detail `late`; `attach` goes on then."""
    answered: asyncio.Future[Attached | Problem] = asyncio.get_running_loop().create_future()

    async def finish() -> None:
        try:
            result = await attach
        except NotAdmitted as error:
            result = not_admitted(error, has_credentials=True)
        except BusError as error:
            log.warning(f"{what} refused", client=client, reason=str(error))
            result = refusal(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        if not answered.done():
            answered.set_result(result)

    server.spawn(finish())
    done, _ = await asyncio.wait([answered], timeout=timeout_s)
    if not done:
        raise Problem(503, "kafka_timeout", late)
    result = answered.result()
    if isinstance(result, Problem):
        raise result
    return result


def acknowledge(home: ShardHome, session: Session, deliveries: Iterable[Delivery]) -> None:
    """The client has them. Skips those of QoS 0, and a packet id that now belongs to another message."""
    for delivery in deliveries:
        if not delivery.qos or not session.has_in_hand(delivery):
            continue
        if delivery.qos == 1:
            home.acknowledged(session, delivery.packet_id)
        else:
            home.received(session, delivery.packet_id, ReasonCode.SUCCESS)
    home.flush()
