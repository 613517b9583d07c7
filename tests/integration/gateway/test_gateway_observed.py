"""A gateway process on a real broker, looked at from outside: command line, readiness, metrics, `$SYS`, its log."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import paho.mqtt.client as mqtt
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.kafka_bus import KafkaBus
from harness.processes import Gateway
from jobs.cli.gateway_api import GatewayApi
from jobs.cli.main import main
from jobs.stack.process import Identity, wait_until
from jobs.stack.state import StackState, write_state
from schemas.settings import process_settings
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S
from tests.paho_client import Paho

SECRETS = (b"secret-payload", b"secret-password", b"secret-will", b"secret-garbage", b"secret-property")


class ObservedGateway(Gateway):
    """It says all it has to say, and often what it does."""

    def __init__(self, directory: Path, bootstrap: str, prefix: str) -> None:
        super().__init__(directory, bootstrap, prefix)
        self.environ |= {"WAYSTATION_LOG__LEVEL": "debug", "WAYSTATION_GATEWAY__SYS_INTERVAL_S": "0.5"}
        self.environ |= {"WAYSTATION_ROUTER__METRICS_PORT": "0"}  # no router of another stack on this machine


@pytest.fixture
def gateway(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> Iterator[ObservedGateway]:
    """A gateway of a stack in `tmp_path`, as far as the command line can tell."""
    broker.topics(unique_prefix)
    gateway = ObservedGateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        me = Identity.of(os.getpid())
        write_state(
            tmp_path,
            StackState(
                supervisor_pid=me.pid,
                supervisor_create_time=me.create_time,
                ready=True,
                bootstrap=broker.bootstrap,
                listeners=gateway.addresses,
                configuration=[str(Path(__file__).parents[3] / "conf" / "base.toml")],
                processes=[],
            ),
        )
        yield gateway
    finally:
        gateway.stop()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `waystation --data <tmp> …`: its exit status, and what it has printed on both streams."""

    def one(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["waystation", "--data", str(tmp_path), *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        return status, *capfd.readouterr()

    return one


def client(name: str, port: int) -> Paho:
    """A paho client with a persistent session, connected."""
    made = Paho(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=False)
    made.username_pw_set("somebody", "secret-password")
    made.will_set("w", b"secret-will", 1)
    made.reconnect_delay_set(1, 1)
    made.connect("127.0.0.1", port)
    made.loop_start()
    assert wait_until(made.is_connected, PATIENCE_S)
    return made


def samples(address: str) -> dict[str, float]:
    with urlopen(f"http://{address}/metrics") as answer:
        text = answer.read().decode()
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples if not s.labels}


def test_the_console_shows_the_process(gateway: ObservedGateway) -> None:
    """Its clients, its own heartbeat among those of all gateways, and that no router answers here."""
    alice = client("alice <b>", gateway.port)
    base = "http://" + gateway.addresses["metrics"] + "/console"

    def page(path: str) -> str:
        with urlopen(base + path) as answer:
            return str(answer.read().decode())

    try:
        assert wait_until(lambda: "alice &lt;b&gt;" in page("/clients"), PATIENCE_S)
        assert wait_until(lambda: '(this one)</bdi></td><td class="good">up</td>' in page(""), PATIENCE_S)
        assert '<b class="good">Ready</b>' in page("")
        assert page("/shards").count("<bdi>gateway-1</bdi></td>") == process_settings({}).kafka.shards
        assert "No answer: " in page("/applications")
    finally:
        alice.disconnect()
        alice.loop_stop()


def test_sessions_are_listed_looked_at_and_ended(gateway: ObservedGateway, run: Callable[..., Any]) -> None:
    """R12: with the stack's state file or with --gateway, as tables or as JSON."""
    alice = client("alice", gateway.port)
    bob = client("bo[b]\x1b", gateway.port)
    alice.subscribe("a/#", 1)
    bob.disconnect()
    bob.loop_stop()
    api = GatewayApi("http://" + gateway.addresses["metrics"])
    assert wait_until(lambda: (api.session("alice") or {}).get("subscriptions"), PATIENCE_S)
    assert wait_until(lambda: (api.session("bo[b]\x1b") or {}).get("state") == "offline", PATIENCE_S)

    status, out, _ = run("sessions")
    assert status == 0
    assert "alice" in out
    assert r"bo[b]\x1b" in out
    assert "\x1b" not in out
    assert "2 of 2 sessions" in out
    status, out, _ = run("sessions", "--state", "offline", "--json", "--gateway", api.url)
    assert [one["client"] for one in json.loads(out)["sessions"]] == ["bo[b]\x1b"]
    status, out, _ = run("sessions", "--limit", "1")
    assert "1 of 2 sessions; raise --limit to see more" in out

    status, out, _ = run("session", "alice")
    assert (status, "a/#" in out, "secret" in out) == (0, True, False)
    status, out, _ = run("session", "alice", "--json")
    found = json.loads(out)
    assert (found["state"], found["has_will"], found["subscription_list"][0]["filter"]) == ("connected", True, "a/#")

    alice.disable_logger()
    alice.loop_stop()  # it does not come back by itself
    status, out, _ = run("kick", "alice")
    assert (status, out) == (0, "alice disconnected\n")
    assert (api.session("alice") or {})["state"] == "offline"
    assert run("kick", "alice", "--end-session")[1] == "alice was not connected; its session has ended\n"
    assert api.session("alice") is None
    alice.break_off()
    for command in ("kick", "session"):
        status, out, err = run(command, "alice")
        assert (status, out, err) == (
            1,
            "",
            "no gateway has a session for alice: list the sessions with `waystation sessions`\n",
        )


def test_status_shows_whether_the_gateway_is_ready(gateway: ObservedGateway, run: Callable[..., Any]) -> None:
    api = GatewayApi("http://" + gateway.addresses["metrics"])
    assert wait_until(lambda: api.readiness()["ready"], PATIENCE_S), api.readiness()
    status, out, _ = run("status", "--json")
    assert status == 0
    assert json.loads(out)["gateways"] == [{"url": api.url, "ready": True, "faults": {}}]
    gateway.kill()
    (dead,) = json.loads(run("status", "--json")[1])["gateways"]
    assert dead["ready"] is False
    assert "does not answer" in dead["faults"]["http"]
    status, out, err = run("sessions")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1


def test_metrics_of_a_real_broker(gateway: ObservedGateway) -> None:
    """What librdkafka says of itself comes every five seconds."""
    address = gateway.addresses["metrics"]
    sender = client("sender", gateway.port)
    sender.publish("a", b"x", 1).wait_for_publish(PATIENCE_S)
    assert wait_until(lambda: samples(address)["waystation_kafka_brokers_up"] == 1, PATIENCE_S)
    found = samples(address)
    assert found["waystation_kafka_produce_seconds_count"] >= 1
    assert found["waystation_publishes_stored_total"] == 1
    assert found["waystation_checkpoint_seconds_count"] >= 1
    assert found["process_open_fds"] > 10
    sender.disconnect()
    sender.loop_stop()


def test_no_secret_is_in_the_log_at_its_most_talkative(gateway: ObservedGateway) -> None:
    """Payloads, passwords, wills and properties are nobody's but the clients'."""
    receiver, sender = client("receiver", gateway.port), client("sender", gateway.port)
    got: list[bytes] = []
    receiver.on_message = lambda _client, _data, message: got.append(message.payload)
    subscribed: list[int] = []
    receiver.on_subscribe = lambda *_: subscribed.append(1)
    receiver.subscribe("a/#", 2)
    assert wait_until(lambda: subscribed, PATIENCE_S)
    for qos in (0, 1, 2):
        sender.publish("a/b", b"secret-payload", qos, retain=True).wait_for_publish(PATIENCE_S)
    assert wait_until(lambda: len(got) >= 2, PATIENCE_S)
    sender.publish("$SYS/x", b"secret-payload", 1)  # refused: 3.1.1 has no word for it, the connection ends
    connecting = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(gateway.port), "-u", "u", "-P", "secret-password"]
    for arguments in (["-V", "5", "-D", "publish", "user-property", "name", "secret-property"], ["-V", "311"]):
        subprocess.run(
            [*connecting, *arguments, "-t", "a/c", "-m", "secret-payload", "-q", "1"],
            check=True,
        )
    for garbage in (b"\x10\x0esecret-garbage", b"\x00secret-garbage", b"GET /secret-garbage HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", gateway.port)) as raw:
            raw.sendall(garbage)
            raw.settimeout(PATIENCE_S)
            assert raw.recv(100) == b""
    for made in (receiver, sender):
        made.break_off()  # wills are published
    gateway.stop()
    log = gateway.log_file.read_bytes()
    assert b"client connected" in log
    assert b"client lost" in log
    assert b"connection ended without a session" in log
    for secret in SECRETS:
        assert secret not in log


def test_kafka_that_does_not_answer_is_named() -> None:
    """What `/readyz` says then."""

    async def scenario() -> str:
        settings = process_settings({"WAYSTATION_KAFKA__BOOTSTRAP": "127.0.0.1:1"}).kafka
        bus = KafkaBus(settings, asyncio.get_running_loop(), lambda error: None)
        assert not bus.is_consuming
        fault = await bus.find_fault("ws.ingress")
        await bus.close(0.1)
        return fault

    assert "Broker transport failure" in asyncio.run(scenario())
