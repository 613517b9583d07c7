"""`waystation subscribe` as a process: killed, at the end of a pipe, and before a slow reader."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.gateway.host.socket_gateway import SocketGateway

PATIENCE_S = 60.0
COMMAND = (sys.executable, "-m", "jobs.cli.main")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    with SocketGateway(tmp_path_factory.mktemp("gateway"), limits={"session_expiry_s": 1000}) as gateway:
        yield gateway


@contextmanager
def subscriber(gateway: SocketGateway, name: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A subscriber to `name/#` in a session of that name; killed in the end if it still runs."""
    where = ("--address", f"127.0.0.1:{gateway.mqtt_port}", "--client-id", name)
    with subprocess.Popen([*COMMAND, "subscribe", f"{name}/#", *where], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def publish(gateway: SocketGateway, topic: str, payload: bytes) -> None:
    where = ("--address", f"127.0.0.1:{gateway.mqtt_port}", "--file", "-")
    subprocess.run([*COMMAND, "publish", topic, *where], input=payload, check=True, timeout=PATIENCE_S)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def is_subscribed(gateway: SocketGateway, name: str) -> bool:
    session = gateway.harness.home.session(name)
    return session is not None and bool(session.subscriptions)


def test_a_kill_loses_nothing_that_was_not_printed(gateway: SocketGateway) -> None:
    """Killed again and again while messages wait: what comes out of the pipes, together, is everything."""
    with subscriber(gateway, "kill"):
        until(lambda: is_subscribed(gateway, "kill"), "the subscription")
    lines = [b"%d" % number for number in range(60)]
    where = ("--address", f"127.0.0.1:{gateway.mqtt_port}", "--lines")
    subprocess.run([*COMMAND, "publish", "kill/x", *where], input=b"\n".join(lines), check=True, timeout=PATIENCE_S)
    got: list[bytes] = []
    for wanted in (10, 30, 60):
        with subscriber(gateway, "kill") as process:
            assert process.stdout is not None
            while len(set(got)) < wanted:
                got.append(process.stdout.readline())
                assert got[-1], "the subscriber has ended"
            process.kill()
            got += process.stdout.readlines()
    assert set(got) == {b"kill/x " + line + b"\n" for line in lines}


@pytest.mark.parametrize("is_idle", [False, True])
def test_the_end_of_a_pipe_ends_it(gateway: SocketGateway, is_idle: bool) -> None:
    """Whether something is to be written afterwards or not."""
    name = f"pipe{is_idle}"
    with subscriber(gateway, name) as process:
        until(lambda: is_subscribed(gateway, name), "the subscription")
        publish(gateway, f"{name}/x", b"one")
        assert process.stdout is not None
        assert process.stdout.readline() == f"{name}/x one\n".encode()
        process.stdout.close()
        if not is_idle:
            publish(gateway, f"{name}/x", b"two")
        assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE


def test_a_slow_reader_keeps_the_connection(gateway: SocketGateway) -> None:
    """More than a pipe takes is written when there is room; and Ctrl-C still ends the command."""
    payload = b"x" * 50_000
    with subscriber(gateway, "slow") as process:
        until(lambda: is_subscribed(gateway, "slow"), "the subscription")
        for _ in range(4):
            publish(gateway, "slow/x", payload)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(4)] == [b"slow/x " + payload + b"\n"] * 4
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_pipe_of_the_shell(gateway: SocketGateway, tmp_path: Path) -> None:
    name = "shell"
    where = f"--address 127.0.0.1:{gateway.mqtt_port} --client-id {name}"
    line = f"{' '.join(COMMAND)} subscribe '{name}/#' {where} 2>errors | head -1"
    with subprocess.Popen(line, shell=True, stdout=subprocess.PIPE, cwd=tmp_path, env=_environ()) as shell:
        until(lambda: is_subscribed(gateway, name), "the subscription")
        publish(gateway, f"{name}/x", b"one")
        out, _ = shell.communicate(timeout=PATIENCE_S)
    assert out == b"shell/x one\n"
    assert (tmp_path / "errors").read_text() == ""


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
