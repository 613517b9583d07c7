"""A gateway process with TLS, passwords and rules, on a real broker (R11)."""

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

from harness.keys import Authority
from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S
from tests.integration.gateway.test_listeners import handshake


def configured(directory: Path) -> tuple[Authority, dict[str, str]]:
    """An authority, and the environment of a gateway that lets in alice, over TLS alone."""
    authority = Authority(directory)
    ours = authority.sign("localhost", file="server")
    (directory / "acl.toml").write_text('[[rules]]\npublish.allow = ["users/%u/#"]\n')
    named = {
        "HOST": "0.0.0.0",
        "MQTT_PORT": "off",
        "WEBSOCKET_PORT": "off",
        "HTTP_PORT": "off",
        "TLS__MQTTS_PORT": "0",
        "TLS__CERTIFICATE": str(ours.certificate),
        "TLS__KEY": str(ours.key),
        "AUTHENTICATION__METHODS": '["password"]',
        "AUTHENTICATION__PASSWORD__FILE": str(directory / "passwords"),
        "AUTHORIZATION__FILE": str(directory / "acl.toml"),
    }
    return authority, {f"WAYSTATION_GATEWAY__{name}": value for name, value in named.items()}


def passwd(directory: Path, user: str, password: str) -> None:
    command = [sys.executable, "-m", "jobs.cli.main", "passwd", str(directory / "passwords"), user]
    subprocess.run(command, input=f"{password}\n", text=True, check=True, timeout=PATIENCE_S)


def test_a_process_with_tls_passwords_and_rules(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """R11, G11: what changes on disk is taken, by itself or on SIGHUP; nothing listens without TLS."""
    authority, environment = configured(tmp_path)
    passwd(tmp_path, "alice", "secret")
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o600
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **environment)
    gateway.start()
    try:
        assert set(gateway.addresses) == {"mqtts", "metrics"}
        port = gateway.port_of("mqtts")

        def pub(user: str, password: str, topic: str) -> bool:
            where = ("-h", "127.0.0.1", "-p", str(port), "--cafile", str(authority.file))
            what = ("-V", "5", "-q", "1", "-u", user, "-P", password, "-t", topic, "-m", "x")
            done = subprocess.run(["mosquitto_pub", *where, *what], capture_output=True, timeout=PATIENCE_S, text=True)
            return done.returncode == 0 and "rror" not in done.stderr

        assert pub("alice", "secret", "users/alice/x")
        assert not pub("alice", "wrong", "users/alice/x")
        passwd(tmp_path, "bob", "other")
        assert wait_until(lambda: pub("bob", "other", "users/bob/x"), PATIENCE_S)
        trust = ssl.create_default_context(cafile=str(authority.file))
        before = handshake(port, trust)
        authority.sign("localhost", file="server")
        os.kill(gateway.process.identity.pid, signal.SIGHUP)
        assert wait_until(lambda: handshake(port, trust) != before, PATIENCE_S)
    finally:
        gateway.stop()
    said = (tmp_path / "gateway.log").read_text()
    assert "client not admitted" in said
    assert "secret" not in said
    assert "argon2id" not in said


def test_a_gateway_that_anyone_could_use_from_elsewhere_does_not_start() -> None:
    """R11: one sentence says why, and what to do."""
    environment = {**os.environ, "WAYSTATION_GATEWAY__HOST": "0.0.0.0"}
    ended = subprocess.run(
        [sys.executable, "-m", "gateway"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 1
    assert "gateway.authentication.methods is empty" in ended.stderr
    assert ended.stderr.count("\n") == 1
