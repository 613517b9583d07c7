"""What a Spark application does when its JVM has gone: it ends, so that it is started again."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from jobs.observe.readiness import Readiness
from jobs.observe.routing import RouterMetrics, RouterReporter
from jobs.router.query import Router
from jobs.router.routes_follower import await_routes
from jobs.runtime.application import run_application
from schemas.settings import load_settings

BASE = Path(__file__).parents[4] / "conf" / "base.toml"


def unpinned(port: int) -> JavaGateway:
    return JavaGateway(gateway_parameters=GatewayParameters(port=port))


def pinned(port: int) -> JavaGateway:
    """As pyspark has it: a connection for each thread."""
    return ClientServer(JavaParameters(port=port), PythonParameters(port=0))


class Nobody(NamedTuple):
    """A call of a Java method where no JVM listens, and what it raises."""

    call: Callable[[], None]
    error: type[Exception]


@pytest.fixture(params=[(unpinned, Py4JNetworkError), (pinned, ConnectionRefusedError)])
def nobody(request: pytest.FixtureRequest) -> Iterator[Nobody]:
    connect, error = request.param
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gateway = connect(port)
    yield Nobody(lambda: gateway.jvm.System.nanoTime(), error)
    gateway.shutdown()


@pytest.fixture
def reporter() -> RouterReporter:
    return RouterReporter(
        RouterMetrics(CollectorRegistry()), Readiness(), lambda _query, error: pytest.fail(f"goes on: {error}")
    )


@pytest.mark.usefixtures("logging_kept")
def test_the_application_ends_with_one_sentence(
    nobody: Nobody,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WAYSTATION_DATA", str(tmp_path))
    monkeypatch.setattr("jobs.runtime.application.set_on_signals", lambda *_: None)
    assert run_application(lambda *_: nobody.call()) == 1
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("the JVM of this process no longer answers: ")] == said[-1:]


def test_a_router_does_not_try_for_ever(
    nobody: Nobody, reporter: RouterReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None
    router = Router(nothing, load_settings([BASE], {}), nothing, "active", reporter)
    monkeypatch.setattr(router, "_start", lambda _realigned: nobody.call())
    with pytest.raises(nobody.error):
        router.watch(time.time())


def test_nobody_waits_for_routes_without_it(nobody: Nobody) -> None:
    class Routes:
        refresh = staticmethod(nobody.call)

    routes: Any = Routes()
    with pytest.raises(nobody.error):
        await_routes(routes, Event())
