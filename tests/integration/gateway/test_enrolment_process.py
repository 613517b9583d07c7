"""The commands that operators and devices run, against a gateway process: enrolled, renewed, revoked (M5)."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bundles.receipt import Role
from edge.agent.settings import example
from edge.enrol.authority_files import AuthorityFiles, init
from edge.enrol.enrolment import enrol, renew
from edge.enrol.errors import EnrolmentRefused
from edge.enrol.gateway_post import GatewayPost
from edge.enrol.identity_files import load
from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker

PATIENCE_S = 20.0


def waystation(directory: Path, *words: str) -> tuple[int, str]:
    """Exit status, and what it said."""
    command = [sys.executable, "-m", "edge.cli.main", *words]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        command, cwd=directory, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    return ended.returncode, (ended.stdout + ended.stderr).strip()


def test_from_a_token_to_a_revocation(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    broker.topics(unique_prefix)
    authority, foreign = new_authority(tmp_path / "authority"), new_authority(tmp_path / "another")
    authority.issue("platform", {Role.GATEWAY}, tmp_path / "platform")
    changes = {"ENABLED": "true", "DIRECTORY": str(tmp_path / "authority"), "CERTIFICATE_DAYS": "3"}
    gateway = Gateway(
        tmp_path / "data",
        broker.bootstrap,
        unique_prefix,
        **{f"WAYSTATION_GATEWAY__ENROLMENT__{name}": value for name, value in changes.items()},
    )
    (tmp_path / "data").mkdir()
    gateway.start()
    try:
        url = f"http://127.0.0.1:{gateway.http_port}"
        (tmp_path / "agent.toml").write_text(example("van-7"))
        directory = tmp_path / "agent" / "identity"
        tokens = {
            "another authority": foreign.token("van-7", {Role.RECIPIENT}, 600),
            "has expired": authority.token("van-7", {Role.RECIPIENT}, -1),
        }
        for detail, token in tokens.items():
            with pytest.raises(EnrolmentRefused, match=detail):
                asyncio.run(enrol(directory, token, GatewayPost(url, None, PATIENCE_S)))
        token = authority.token("van-7", {Role.RECIPIENT, Role.EXIT_AGENT}, 600)
        status, said = waystation(tmp_path, "agent", "enrol", "--token", token, "--gateway", url)
        assert (status, "van-7 is enrolled" in said) == (0, True), said
        stored = load(directory)
        assert stored.identity.certificate.roles == {Role.RECIPIENT, Role.EXIT_AGENT}
        assert stored.identity.certificate.not_after_s < time.time() + 4 * 86_400
        assert [one.name for one in stored.gateways] == ["platform"]

        async def renewed() -> None:
            await renew(directory, GatewayPost(url, None, PATIENCE_S), time.time(), rotates_sealing_key=True)

        asyncio.run(renewed())
        assert len(load(directory).identity.sealing_keys) == 2
        authority.revoke(["van-7"])
        assert wait_until(lambda: "files reloaded" in gateway.log(), PATIENCE_S)
        with pytest.raises(EnrolmentRefused, match="the certificate of van-7 is revoked"):
            asyncio.run(renewed())
        assert "device enrolled" in gateway.log()
        for one in (token, *tokens.values()):
            assert one not in gateway.log()
            assert one.removeprefix("wse-")[-40:] not in gateway.log()
    finally:
        gateway.stop()


def new_authority(directory: Path) -> AuthorityFiles:
    init(directory, "tests", time.time())
    return AuthorityFiles(directory, time.time)
