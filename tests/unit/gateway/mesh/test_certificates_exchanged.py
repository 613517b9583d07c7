"""Agents that have never met learn each other's certificates from a gateway (M5, M17)."""

from pathlib import Path

from tests.unit.bundles.keys import certificate
from tests.unit.gateway.http.http_harness import run
from tests.unit.gateway.mesh.mesh_gateway import MeshGateway, b64

PATH = "/v1/mesh/certificates"


def test_a_certificate_that_was_brought_is_given_to_who_asks_for_the_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path).start()
        (ours,) = gateway.certificates("agent")
        foreign = certificate("stranger").der[:-1] + b"x"
        assert (await gateway.ask(PATH, {"names": ["agent"]})).json == {"certificates": []}
        brought = await gateway.ask(PATH, {"certificates": [b64(ours), b64(foreign)]})
        assert (brought.status, brought.json) == (200, {"certificates": []})
        found = await gateway.ask(PATH, {"names": ["agent", "stranger", "nobody"]})
        assert found.json == {"certificates": [b64(ours)]}
        assert (await gateway.ask(PATH, {"names": ["x"] * 501})).status == 400

    run(scenario())


def test_a_gateway_without_the_mesh_gives_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        gateway = await MeshGateway(tmp_path, mesh={"enabled": False}).start()
        assert (await gateway.ask(PATH, {"names": ["agent"]})).reason == "mesh_disabled"

    run(scenario())
