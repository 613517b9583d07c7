"""Ends all connections in order, in bounded time, without leaving clients half-finished exchanges (G8).

1. Deliveries stop; clients may acknowledge what they were sent, so that it is not redelivered.
2. Reading stops; accepted messages are answered once Kafka has stored them.
3. MQTT 5 clients get DISCONNECT 0x8B, and every transport closes after its last bytes.
"""

import asyncio
from collections.abc import Callable, Collection

from gateway.host.connection import Connection
from mqtt.codes import ReasonCode

ACKNOWLEDGE_S = 1.0
ANSWER_S = 3.0
_LOOK_S = 0.02


async def drain(connections: Collection[Connection]) -> None:
    """Ends every connection, within ACKNOWLEDGE_S + ANSWER_S seconds; those that end leave `connections`."""
    for connection in connections:
        connection.hold_deliveries()
    await until(lambda: not any(c.awaits_client for c in connections), ACKNOWLEDGE_S)
    for connection in connections:
        connection.stop_reading()
    await until(lambda: not any(c.awaits_kafka for c in connections), ANSWER_S)
    for connection in list(connections):
        connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)


async def until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Returns once the condition holds or the time-out has passed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(_LOOK_S)
