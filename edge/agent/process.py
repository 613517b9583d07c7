"""`waystation agent up`: the agent in the foreground, until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import ctypes
import logging
import signal
from collections.abc import Callable
from typing import Final

from edge.agent.agent import Agent
from edge.agent.settings import AgentSettings

GLIBC_SETTINGS: Final = ((-8, 1), (-3, 1 << 16), (-1, 1 << 17))
"""M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD (mallopt(3))."""
LOGGED: Final = ("waystation.agent", "waystation.client", "waystation.mesh", "waystation.uplink")


def run(settings: AgentSettings, say: Callable[[str], None]) -> None:
    """Returns when it was asked to end. `say` shows that it is ready. Raises WaystationError."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    for name in LOGGED:
        logging.getLogger(name).setLevel(logging.INFO)
    keep_memory_small()
    asyncio.run(_run(settings, say))


def keep_memory_small() -> None:
    """Asks the C library to return what is freed: glibc would keep an arena for each thread, and blocks as large as the
    largest request so far. Other libraries are left as they are."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter, value in GLIBC_SETTINGS:
        mallopt(parameter, value)


async def _run(settings: AgentSettings, say: Callable[[str], None]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    async with Agent(settings) as agent:
        where = f", SMTP on {settings.smtp.submission.host}:{agent.submission_port}" if agent.submission_port else ""
        where += f", MQTT on {settings.mqtt.listener.host}:{agent.mqtt_port}" if agent.mqtt_port else ""
        where += f", peers on {settings.mesh.host}:{agent.mesh_port}" if agent.mesh_port else ""
        where += f", metrics on {settings.metrics.host}:{agent.metrics_port}" if agent.metrics_port else ""
        say(f"ready: agent {settings.client_id}{where}")
        tasks = [asyncio.ensure_future(agent.ended()), asyncio.ensure_future(stopping.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
