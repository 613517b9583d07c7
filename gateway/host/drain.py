"""An orderly end of all connections: nothing half done is left to the clients, and the time it takes is bounded (G8).

1. Nothing more is delivered; what clients were sent they may acknowledge, so that it does not come again.
2. Nothing more is read; what was taken is answered once Kafka has it.
3. MQTT 5 clients get DISCONNECT 0x8B, and every transport ends behind what was written.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqtt.codes import ReasonCode

if TYPE_CHECKING:
    from gateway.host.server import HostServer

ACKNOWLEDGE_S = 1.0
ANSWER_S = 3.0
_LOOK_S = 0.02


async def drain(server: "HostServer") -> None:
    """Ends every connection of `server`, within ACKNOWLEDGE_S + ANSWER_S seconds."""
    for connection in server.connections:
        connection.hold_deliveries()
    await until(lambda: not any(c.awaits_client for c in server.connections), ACKNOWLEDGE_S)
    for connection in server.connections:
        connection.stop_reading()
    await until(lambda: not any(c.awaits_kafka for c in server.connections), ANSWER_S)
    for connection in list(server.connections):
        connection.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)


async def until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Returns once the condition holds, or the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(_LOOK_S)
