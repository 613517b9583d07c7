"""The files of `[gateway.mesh]`, batches of message presence, and a gateway without the mesh (M5, M9, M17)."""

from pathlib import Path

import msgspec
import pytest

from bundles.receipt import Role
from gateway.mesh.platform import Platform
from schemas.errors import SettingsError
from schemas.settings import process_settings
from tests.unit.bundles.files import PLATFORM, mesh_files
from tests.unit.bundles.keys import NOW_S
from tests.unit.gateway.http.http_harness import run, until
from tests.unit.gateway.mesh.mesh_gateway import MeshGateway, made, outcomes


def test_batches_of_message_presence(tmp_path: Path) -> None:
    """M9, M11, M12: many events and ids in one request; receipts of what the platform has taken, and only of that."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        bundle = made(1)
        await gateway.bring(bundle)
        await until(lambda: len(gateway.reports()) == 1)
        events = [{"id": f"m{n}", "event": "attempting", "at_us": n} for n in range(500)]
        events[7] |= {"event": "propagated"}
        events[8] |= {"at_us": 2**55}
        answer = await gateway.ask("/v1/message-presence", {"events": events})
        results = answer.json["results"]
        assert [n for n, result in enumerate(results) if not result["stored"]] == [7, 8]
        assert "peer" in results[7]["problem"]
        assert [e.agent for e in gateway.reports()].count("http:proxy") == 498
        assert (await gateway.ask("/v1/message-presence", {"events": [*events, events[0]]})).status == 400
        forged = {"id": "other", "event": "delivered", "at_us": 1, "peer": "x", "agent": PLATFORM}
        assert (await gateway.ask("/v1/message-presence", {"events": [forged]})).status == 400
        for name in (PLATFORM, f"x{PLATFORM}"):
            await gateway.ask(
                "/v1/message-presence",
                {"events": [{**{k: v for k, v in forged.items() if k != "agent"}, "id": name}]},
                {"X-Client-Id": name, "Content-Type": "application/json"},
            )
        assert [e.id for e in gateway.reports() if e.agent == PLATFORM] == [bundle.message_id]
        gateway.merge(bundle.message_id, PLATFORM)
        gateway.merge("other", "http:proxy")
        await until(lambda: len(gateway.node.message_presence) == 2)
        ids = [bundle.message_id, "other", "unknown"]
        found = (await gateway.ask("/v1/message-presence/query", {"ids": ids})).json
        assert set(found["states"]) == {bundle.message_id, "other"}
        assert set(found["receipts"]) == {bundle.message_id}
        assert gateway.checked(found["receipts"][bundle.message_id]).message_id == bundle.message_id
        await gateway.restart()
        assert outcomes(await gateway.bring(bundle)) == ["taken"]
        assert len(gateway.ingress()) == 1, "message presence says that a gateway has taken it"

    run(scenario())


def test_a_certificate_that_was_forgotten_is_learned_again(tmp_path: Path) -> None:
    """M5: as many names are remembered as is set."""

    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path, mesh={"certificates": 2}).start()
        for sequence in (1, 2):
            for name in ("one", "two", "three"):
                assert outcomes(await gateway.bring(made(sequence, originator=name))) == ["taken"]
        assert len(gateway.ingress()) == 6

    run(scenario())


def test_a_gateway_without_the_mesh_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path, mesh={"enabled": False}).start()
        assert (await gateway.bring(made(1))).reason == "mesh_disabled"
        assert (await gateway.request("GET", "/v1/mesh")).reason == "mesh_disabled"

    run(scenario())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "http-gateway"}, "begins with 'http'"),
        ({"roles": (Role.RECIPIENT,)}, "does not have the role"),
        ({"now_s": NOW_S - 100 * 86_400}, "has expired"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, wrong: dict[str, object], said: str) -> None:
    """R11: the error names the file and the reason."""
    files = mesh_files(tmp_path, **({"now_s": NOW_S} | wrong))  # type: ignore[arg-type]
    mesh = msgspec.structs.replace(process_settings({}).gateway.mesh, **files)
    with pytest.raises(SettingsError, match=said) as error:
        Platform(mesh, lambda: NOW_S)
    assert mesh.certificate_file in str(error.value)


@pytest.mark.parametrize("key", ["authority_file", "certificate_file", "key_file", "sealing_key_files"])
def test_files_that_are_missing_or_broken(tmp_path: Path, key: str) -> None:
    """R11."""
    files = mesh_files(tmp_path, NOW_S)
    mesh = msgspec.structs.replace(process_settings({}).gateway.mesh, **files)
    path = Path(files[key][0] if key == "sealing_key_files" else files[key])
    for change in (lambda: path.write_bytes(b"nonsense"), path.unlink):
        change()
        with pytest.raises(SettingsError, match=key) as error:
            Platform(mesh, lambda: NOW_S)
        assert str(path) in str(error.value)
