"""What of bundles is too much is refused, now or for good (M7, R9)."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from schemas.errors import SettingsError
from schemas.mesh_settings import check_mesh
from schemas.settings import process_settings
from tests.unit.gateway.http.http_harness import run, until
from tests.unit.gateway.mesh.mesh_gateway import MeshGateway, made, outcomes


def test_requests_that_are_too_much(tmp_path: Path) -> None:
    """R11: each limit has its answer, and nothing was done."""

    async def scenario() -> None:
        limits = {
            "request_bundles": 3,
            "request_bytes": 8_192,
            "bundles_per_s": 0.001,
            "bundles_burst": 4,
            "requests": 1,
        }
        gateway = await MeshGateway(tmp_path, mesh=limits).start()
        assert (await gateway.bring(*[b""] * 4)).reason == "too_many_bundles"
        assert (await gateway.ask("/v1/bundles", {"bundles": ["AA=="] * 501})).reason == "malformed_body"
        assert (await gateway.bring(bytes(8_192))).reason == "packet_too_large"
        assert (await gateway.ask("/v1/bundles", {"bundles": ["?"]})).reason == "malformed_body"
        assert (await gateway.ask("/v1/bundles", [])).reason == "malformed_body"
        assert outcomes(await gateway.bring(made(1), made(2), made(3))) == ["taken"] * 3
        assert (await gateway.bring(made(4), made(5))).reason == "bundle_rate"
        assert len(gateway.ingress()) == 3
        gateway.bus.held_acks.add(gateway.topics.ingress)
        first = asyncio.create_task(gateway.bring(made(6)))
        await until(lambda: len(gateway.ingress()) == 4)
        assert (await gateway.bring(made(7))).reason == "too_many_requests_at_once"
        gateway.bus.held_acks.clear()
        gateway.bus.release()
        assert outcomes(await first) == ["taken"]

    run(scenario())


def test_a_bundle_of_the_largest_size_fits_a_request() -> None:
    """R11: otherwise it would be answered with 413 for ever."""
    files = {"authority_file": "a", "certificate_file": "c", "key_file": "k", "sealing_key_files": ("s",)}
    mesh = msgspec.structs.replace(process_settings({}).gateway.mesh, enabled=True, **files)
    check_mesh(mesh, 1_048_576)
    with pytest.raises(SettingsError, match="request_bytes = 1048576 is too small"):
        check_mesh(msgspec.structs.replace(mesh, request_bytes=1_048_576), 1_048_576)
    with pytest.raises(SettingsError, match="remembered_s = 1 is too small"):
        check_mesh(msgspec.structs.replace(mesh, remembered_s=1.0), 1_048_576)


def test_bytes_in_flight_are_limited_for_bundles(tmp_path: Path) -> None:
    """limits.in_flight_bytes, R9: with Kafka away, bundles must not pile up; all of them are taken in the end, once."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path, http={"kafka_timeout_s": 0.05}, in_flight_bytes=1_000).start()
        gateway.bus.held_stores = {gateway.topics.ingress}
        bundles = [made(number, b"." * 600) for number in range(1, 7)]
        answer = await gateway.bring(*bundles)
        assert gateway.home.in_flight_bytes <= 1_300
        assert outcomes(answer) == ["later"] * 6
        assert "too much is in flight to Kafka" in [result["reason"] for result in answer.json["results"]]
        gateway.bus.held_stores = set()
        gateway.bus.release()
        await until(lambda: not gateway.bus.in_flight)
        for number in range(0, 6, 2):
            assert outcomes(await gateway.bring(*bundles[number : number + 2])) == ["taken"] * 2
        assert sorted(record[0] for record in gateway.ingress()) == sorted(one.message_id for one in bundles)

    run(scenario())
