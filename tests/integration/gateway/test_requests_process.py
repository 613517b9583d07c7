"""Requests over HTTP to a gateway process on a real broker: curl asks, paho answers, as docs/http.md shows (R6)."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from harness.processes import Gateway, Program
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.documents import ROOT, code_blocks
from tests.integration.gateway.test_gateway_http import curl
from tests.integration.gateway.test_gateway_process import PATIENCE_S
from tests.paho_client import Paho

SECTION = (ROOT / "docs" / "http.md").read_text().split("## Ask and wait for replies")[1].split("### ")[0]
SHARDS, PARTITIONS = "4", "2"


@pytest.fixture
def gateway(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> Iterator[Gateway]:
    """With a router, which is no Spark."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    of_router = "harness.everyone_router", broker.bootstrap, unique_prefix, SHARDS, PARTITIONS
    router = Program(tmp_path, "router", *of_router, environ=dict(os.environ))
    gateway.start()
    try:
        router.launch()
        yield gateway
    finally:
        router.stop()
        gateway.stop()


def at(gateway: Gateway, command: str) -> list[str]:
    """The arguments of a documented command, for this gateway."""
    return [word.strip("'").replace("127.0.0.1:8080", f"127.0.0.1:{gateway.http_port}") for word in command.split()[1:]]


@contextmanager
def documented_responder(gateway: Gateway) -> Iterator[None]:
    [program] = code_blocks(SECTION, "python")
    process = subprocess.Popen([sys.executable, "-c", program.replace("1883", str(gateway.port))])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def test_the_documented_commands(gateway: Gateway) -> None:
    one, every = code_blocks(SECTION, "sh")
    with documented_responder(gateway):
        assert wait_until(lambda: curl(*at(gateway, one.replace("timeout=5", "timeout=1")))[0] == 200, PATIENCE_S)
        assert curl(*at(gateway, one)) == (200, "B17")
        status, body = curl(*at(gateway, every.replace("most=10", "most=1")))
    assert status == 200
    assert '"payload":"B17"' in body
    assert '"content_type":"text/plain"' in body
    assert body.endswith('event: end\ndata: {"reason":"most","replies":1}\n\n')
    status, body = curl(*at(gateway, one.replace("timeout=5", "timeout=1")))
    assert (status, '"reason":"no_reply"' in body) == (504, True), "the responder has left"


class Silent:
    """A paho client that answers when it is told to; its session outlives the gateway."""

    def __init__(self, port: int) -> None:
        self.requests: list[mqtt.MQTTMessage] = []
        self._client = Paho(CallbackAPIVersion.VERSION2, "silent", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_message = lambda _client, _data, message: self.requests.append(message)
        keep: Any = Properties(PacketTypes.CONNECT)
        keep.SessionExpiryInterval = 600
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port, clean_start=False, properties=keep)
        self._client.loop_start()
        self._client.subscribe("gates/which", qos=1)
        assert subscribed.wait(PATIENCE_S)

    def reply(self, payload: bytes) -> None:
        properties: Any = Properties(PacketTypes.PUBLISH)
        about: Any = self.requests[0].properties
        properties.CorrelationData = about.CorrelationData
        self._client.publish(about.ResponseTopic, payload, qos=1, properties=properties)

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def test_a_killed_gateway_and_a_key(gateway: Gateway) -> None:
    """R6, Q1: the request that waited is lost with the gateway; asked again with its key it is not sent again, and gets
    the reply."""

    def ask(timeout: int) -> tuple[int, str]:
        url = f"http://127.0.0.1:{gateway.http_port}/v1/requests/gates/which?timeout={timeout}"
        return curl("-H", "X-Client-Id: asker", "-H", "Idempotency-Key: k", "-d", "EV4321", url)

    silent = Silent(gateway.port)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, 30)
        assert wait_until(lambda: len(silent.requests) == 1, PATIENCE_S)
        gateway.kill()
        with pytest.raises(subprocess.CalledProcessError):
            waiting.result(PATIENCE_S)
        silent.leave()
        gateway.start()
        again = Silent(gateway.port)
        again.requests = silent.requests
        waiting = pool.submit(ask, 30)

        def answered() -> bool:
            again.reply(b"B17")
            return waiting.done()

        assert wait_until(answered, PATIENCE_S)
        assert waiting.result() == (200, "B17")
        assert len(again.requests) == 1, "it was not sent twice"
        again.leave()
