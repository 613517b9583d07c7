"""The dispatcher process: assembles what it follows, accepts and serves, and ends in order (R1).

It runs on asyncio's own loop. uvloop stops watching a socket that has an error, such as a reset of a client that is
being looked at.
"""

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from gateway.dispatch.choice import Choice
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.following import follow
from gateway.dispatch.listening import open_listening, port_of
from gateway.dispatch.observer import DispatcherMetrics, DispatcherObserver
from gateway.dispatch.replacement import Predecessor, Replaceable, find_predecessor
from gateway.host.open_files import allow_open_files
from gateway.kafka_bus import KafkaBus
from gateway.sockets.directory import SocketDirectory
from schemas.errors import SettingsError
from schemas.readiness import announce_ready
from schemas.settings import RESERVED_FILES, GatewaySettings, Settings

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_GIVE_S: Final = 3.0
"""How long the end waits until gateways have the clients that are known."""

_METRICS_TRIES: Final = 20
_METRICS_AGAIN_S: Final = 0.1
"""The predecessor may still have the port for metrics."""

log = structlog.get_logger(__name__)


async def run(settings: Settings, part: str) -> None:
    """Runs until SIGTERM or SIGINT, or until another dispatcher takes its place. Raises SettingsError, SocketsError,
    BusError, OSError."""
    loop, gateway = asyncio.get_running_loop(), settings.gateway
    if not gateway.cluster.sockets:
        raise SettingsError(
            "gateway.cluster.sockets is empty: the dispatcher needs the directory in which it reaches its gateways"
        )
    stopping: asyncio.Future[bool] = loop.create_future()  # whether a successor is there

    def stop(is_replaced: bool) -> None:
        if not stopping.done():
            stopping.set_result(is_replaced)

    def fatal(error: Exception) -> None:
        if not stopping.done():
            stopping.set_exception(error)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop, False)
    connections = gateway.dispatcher.connections
    allow_open_files(connections + RESERVED_FILES, f"gateway.dispatcher.connections = {connections}")
    counts, bus = Counter[str](), KafkaBus(settings.kafka, loop, fatal)
    with SocketDirectory(Path(gateway.cluster.sockets)) as directory:
        choice = await _unless(stopping, follow(settings, bus, counts))
        if choice is None:
            await bus.close(_GIVE_S)
            return
        dispatcher = Dispatcher(gateway.dispatcher, gateway.proxy_protocol, directory, choice, counts)
        observer = DispatcherObserver(
            DispatcherMetrics(counts, lambda: dispatcher.open, lambda: len(dispatcher.processes)),
            lambda: {"gateways": "" if dispatcher.reaches_any() else "no gateway of this machine takes clients"},
        )
        predecessor = await find_predecessor(directory)
        dispatcher.accept_from(_listening(gateway, predecessor))
        replaceable = Replaceable(directory, lambda: dispatcher.listening, lambda: stop(True))
        if predecessor is not None:
            await predecessor.accepting()
        listeners = {"mqtt": f"{_host(gateway)}:{port_of(dispatcher.listening)}"}
        metrics_port = await _observe(observer, gateway, predecessor is not None)
        if metrics_port is not None:
            listeners["dispatcher-metrics"] = f"{gateway.host}:{metrics_port}"
        if part:
            announce_ready(settings.data, part, {"listeners": listeners})
        log.info("dispatcher ready", replaces=predecessor is not None, **listeners)
        try:
            is_replaced = await stopping
        finally:
            replaceable.close()
            dispatcher.accept_no_more()
            await observer.stop()
        wait_s = _GIVE_S + (gateway.dispatcher.connect_timeout_s if is_replaced else 0.0)
        await dispatcher.finish(wait_s, at_once=not is_replaced)
        await bus.close(_GIVE_S)
        log.info("dispatcher stopped", replaced=is_replaced, given=counts["taken"])


async def _unless(stopping: asyncio.Future[bool], work: Coroutine[Any, Any, Choice]) -> Choice | None:
    """What `work` gives; None if it is to stop before."""
    working = asyncio.ensure_future(work)
    either: list[asyncio.Future[Any]] = [working, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        working.cancel()
        stopping.result()  # raises what has ended the consumer
        return None
    return working.result()


def _host(gateway: GatewaySettings) -> str:
    return gateway.dispatcher.host or gateway.host


def _listening(gateway: GatewaySettings, predecessor: Predecessor | None) -> Sequence[socket.socket]:
    """The predecessor's, if they have the configured port; otherwise new ones. Raises
    SettingsError."""
    port = gateway.dispatcher.port
    if predecessor is not None and port in (0, port_of(predecessor.listening)):
        return predecessor.listening
    opened = open_listening(_host(gateway), port)
    for one in () if predecessor is None else predecessor.listening:
        one.close()
    return opened


async def _observe(observer: DispatcherObserver, gateway: GatewaySettings, has_predecessor: bool) -> int | None:
    """The port for metrics; None if it is off, or if the predecessor keeps it: clients are served all the same. Raises
    SettingsError."""
    port = gateway.dispatcher.metrics_port
    if isinstance(port, str):
        return None
    for tries_left in reversed(range(_METRICS_TRIES if has_predecessor else 1)):
        try:
            return await observer.start(gateway.host, port)
        except SettingsError as error:
            if not has_predecessor:
                raise
            if not tries_left:
                log.error("cannot serve metrics", port=port, reason=str(error))
        await asyncio.sleep(_METRICS_AGAIN_S)
    return None
