"""`waystation feed adapter`: an adapter in the foreground, until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from edge.client.errors import MissingPackage
from edge.feeds.adapter.settings import AdapterSettings

if TYPE_CHECKING:
    from edge.feeds.adapter.adapter import Adapter

SWITCH_S: Final = 0.001
"""Kafka's client works on threads: beats must not wait for them for long."""


def run(settings: AdapterSettings, say: Callable[[str], None]) -> None:
    """Returns when it was asked to end. `say` shows what it does. Raises WaystationError."""
    make = _adapter_class()
    sys.setswitchinterval(SWITCH_S)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("waystation.feed").setLevel(logging.INFO)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it repeats what is said here
    asyncio.run(_run(make, settings, say))


def _adapter_class() -> "Callable[[AdapterSettings], Adapter]":
    try:
        from edge.feeds.adapter.adapter import Adapter
        from edge.feeds.adapter.mqtt_output import mqtt_outputs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kafka":
            raise
        raise MissingPackage(
            "a feed adapter needs the package kafka-python: pip install 'waystation-edge[kafka]'"
        ) from error
    return partial(Adapter, more_outputs=mqtt_outputs)


async def _run(
    make: "Callable[[AdapterSettings], Adapter]", settings: AdapterSettings, say: Callable[[str], None]
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    feed = settings.feed
    say(f"ready: adapter {feed.adapter}, feed {feed.name}, slot {feed.slot}")
    await make(settings).run(stopping)
