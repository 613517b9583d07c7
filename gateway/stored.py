"""Waiting until Kafka has a record."""

import asyncio
from typing import Any

from gateway.bus import Bus
from gateway.errors import BusError
from schemas.envelope import Headers


def stored(
    bus: Bus, topic: str, partition: int, record: tuple[bytes, bytes, Headers | None], refused: str
) -> asyncio.Future[None]:
    """Sends a record (key, value, headers). The future is done once it is stored; if Kafka refuses it, it raises
    BusError, which begins with `refused`."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(error: Any, _record: Any) -> None:
        if done.done():  # nobody waits any more
            return
        if error is not None:
            done.set_exception(BusError(f"{refused}: {error.str()}"))
        else:
            done.set_result(None)

    bus.produce(topic, partition, *record, answer)
    return done
