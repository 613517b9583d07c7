"""POST /v1/enrolments and its renewal: limits, refusals, and files that change while the gateway runs (M5)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog.testing

from bundles import revocations as revocation_format
from bundles.receipt import Role
from gateway.access.enrolment import Enrolment
from gateway.http.enrolment_handler import EnrolmentHandler
from gateway.http.problems import Problem
from schemas.enrolment import ENROLMENTS_PATH, RENEWAL_PATH, EnrolmentAnswer
from schemas.errors import SettingsError
from tests.unit.bundles.keys import AUTHORITY, NOW_S, certificate
from tests.unit.gateway.http.enrolment_files import (
    authority_directory,
    enrolment_settings,
    request_to,
    write_revocations,
)
from tests.unit.gateway.http.http_harness import Answer, HttpHarness, run

FUTURE_S = 4_000_000_000
GATEWAY = certificate("gateway", roles=(Role.GATEWAY,))


async def started(tmp_path: Path, authority: Path, **changes: float) -> HttpHarness:
    return await HttpHarness(tmp_path, gateway={"enrolment": enrolment_settings(authority, **changes)}).start()


async def post(harness: HttpHarness, path: str, body: Any) -> Answer:
    return await harness.request("POST", path, json=body)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    (tmp_path / "authority").mkdir()
    return authority_directory(tmp_path / "authority", GATEWAY)


@pytest.mark.parametrize("path", [ENROLMENTS_PATH, RENEWAL_PATH])
def test_a_granted_request_brings_what_a_device_needs_and_no_token_is_logged(
    tmp_path: Path, authority: Path, path: str
) -> None:
    async def scenario() -> None:
        harness = await started(tmp_path, authority)
        body = request_to(path)
        with structlog.testing.capture_logs() as logs:
            answer = await post(harness, path, body)
            refused = await post(harness, path, {**body, "request": "AAAA"})
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
        found = msgspec.json.decode(answer.body, type=EnrolmentAnswer)
        assert AUTHORITY.read(found.certificate).name == "van"
        assert found.mesh.certificates == [GATEWAY.der]
        assert revocation_format.read(found.mesh.revocations, AUTHORITY.key).number == 1
        assert (refused.status, refused.reason) == (400, "malformed_certificate")
        assert [(entry["event"], entry.get("client")) for entry in logs] == [
            ("device enrolled" if path == ENROLMENTS_PATH else "certificate renewed", "van"),
            ("enrolment refused", None),
        ]
        assert "wse-" not in str(logs) + str(refused.json)

    run(scenario())


def test_a_revocation_counts_while_the_gateway_runs_and_an_older_list_does_not(tmp_path: Path, authority: Path) -> None:
    async def scenario() -> None:
        harness = await started(tmp_path, authority)
        assert harness.enrolment is not None
        granted = {path: request_to(path) for path in (ENROLMENTS_PATH, RENEWAL_PATH)}
        newer = write_revocations(authority, 3, {"van": FUTURE_S})
        await harness.enrolment.file.refresh()
        assert newer.number == 3
        for path, body in granted.items():
            answer = await post(harness, path, body)
            assert (answer.status, answer.reason) == (403, "not_issued")
            assert "revoked" in answer.json["detail"]
        write_revocations(authority, 2, {})
        await harness.enrolment.file.refresh()
        assert (await post(harness, RENEWAL_PATH, granted[RENEWAL_PATH])).status == 403
        other = {**request_to(RENEWAL_PATH, "bus"), "revocations": 3}
        answer = await post(harness, RENEWAL_PATH, other)
        assert msgspec.json.decode(answer.body, type=EnrolmentAnswer).mesh.revocations == b""

    run(scenario())


def test_refusals_and_limits(tmp_path: Path, authority: Path) -> None:
    async def scenario() -> None:
        harness = await started(tmp_path, authority, requests_per_s=0.001, requests_burst=4)
        body = request_to(ENROLMENTS_PATH)
        for changed, status, reason in (
            ({**body, "token": "wse-" + "A" * 80}, 403, "malformed_token"),
            ({**body, "role": "gateway"}, 400, "malformed_body"),
            ({**body, "token": "x" * 2_000}, 400, "malformed_body"),
            ({**body, "request": "A" * 20_000}, 413, "packet_too_large"),
            (body, 429, "enrolment_rate_exceeded"),
        ):
            answer = await post(harness, ENROLMENTS_PATH, changed)
            assert (answer.status, answer.reason) == (status, reason)

    run(scenario())


def test_a_flood_of_refusals_is_a_line_a_second(authority: Path) -> None:
    now = [0.0]
    settings = enrolment_settings(authority)
    handler = EnrolmentHandler(Enrolment(settings, lambda: NOW_S), settings, lambda: now[0])
    body = msgspec.json.encode({**request_to(ENROLMENTS_PATH), "token": "wse-AAAA"})
    with structlog.testing.capture_logs() as logs:
        for now[0] in (0.0, 0.4, 0.9, 1.0):
            with pytest.raises(Problem):
                handler.enrol(body, "192.0.2.7:999")
    assert [(entry["peer"], entry["others_since"]) for entry in logs] == [("192.0.2.7:999", 0), ("192.0.2.7:999", 2)]


def test_a_gateway_that_does_not_enrol_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        for path in (ENROLMENTS_PATH, RENEWAL_PATH):
            answer = await post(harness, path, request_to(path))
            assert (answer.status, answer.reason) == (404, "enrolment_off")
            assert "gateway.enrolment.enabled" in answer.json["detail"]

    run(scenario())


@pytest.mark.parametrize("name", ["authority.pem", "authority-key.pem", "revocations.bin", "gateways/0.pem"])
def test_files_that_cannot_be_used_are_named_at_start(authority: Path, name: str) -> None:
    (authority / name).write_bytes(b"nothing")

    async def start() -> None:
        Enrolment(enrolment_settings(authority), lambda: 0.0)

    with pytest.raises(SettingsError, match=r"cannot be used|not a certificate"):
        asyncio.run(start())
