"""The files of the mesh's demo: agents and gateway can be started with them (M5)."""

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from edge.agent.mesh import member
from edge.agent.settings import load
from edge.enrol import identity_files
from jobs.demo.mesh_agents import MeshFiles, Uplinks
from jobs.demo.mesh_plan import MeshPlan, agent_of
from schemas.settings import load_settings

NOON = datetime(2013, 7, 10, 12, tzinfo=UTC)
BASE = Path(str(resources.files("conf").joinpath("base.toml")))


def test_all_agents_and_the_gateway_are_members_of_one_mesh(tmp_path: Path) -> None:
    files = MeshFiles(tmp_path)
    files.make(
        MeshPlan(["JFK", "LGA"], ["N1"], [], NOON, NOON), {"JFK": Uplinks(1, 2), "LGA": Uplinks(3, 4)}, {"N1": 5}
    )
    settings = {place: load(files.settings(place)) for place in ("JFK", "LGA", "N1")}
    stored = {place: identity_files.load(files.store(place) / member.IDENTITY) for place in settings}
    for place, one in settings.items():
        assert one.client_id == stored[place].identity.name == agent_of(place)
        assert (one.store.directory, one.folders.inbox) == (str(files.store(place)), str(files.inbox(place)))
    assert len({one.authority.pem for one in stored.values()}) == 1
    assert [settings[place].mesh.peers for place in ("JFK", "N1")] == [[], ["127.0.0.1:5"]]
    assert settings["LGA"].platform.connect_points == ["mqtt://127.0.0.1:3"]
    assert settings["LGA"].uplink.bearers[0].url == "http://127.0.0.1:4"
    assert not settings["N1"].uplink.enabled
    gateway = load_settings([BASE, files.overlay], {}).gateway
    assert gateway.mesh.enabled
    assert Path(gateway.mesh.certificate_file).exists()
