"""An agent whose network comes and goes: it notices, and tries at once (M3, M5)."""

from pathlib import Path

from tests.agent_process import AgentProcess
from tests.integration.edge.mesh_authority import MeshAuthority
from tests.namespaces import Link, Namespace, required
from tests.waiting import wait_for

required()

HERE, DEVICE, PORT = "10.9.0.1", "10.9.0.2", 7400
NOTICED = "the network has changed: bearers"
SETTINGS = """client_id = "{name}"
[mesh]
enabled = true
host = "0.0.0.0"
port = {port}
peers = {peers}
redial_most_s = 3600.0
[uplink]
enabled = {has_uplink}
[[uplink.bearers]]
name = "lan"
url = "http://{here}:{port}"
"""


def test_a_peer_is_linked_when_the_network_comes(tmp_path: Path) -> None:
    """M5: the device starts without any network. When it has one it notices, and links its peer; it
    notices as well that the network has gone."""
    authority = MeshAuthority(tmp_path)
    with Namespace("a") as a, Namespace("device") as device:
        peer = AgentProcess(
            tmp_path / "peer", SETTINGS.format(name="peer", port=PORT, peers=[], has_uplink="false", here=HERE), a
        )
        text = SETTINGS.format(name="device", port=PORT, peers=[f"{HERE}:{PORT}"], has_uplink="true", here=HERE)
        agent = AgentProcess(tmp_path / "device", text, device)
        for name in ("peer", "device"):
            authority.issue(name, tmp_path / name / "agent" / "identity")
        try:
            peer.start()
            agent.start()
            assert not any(one["name"] == "peer" for one in agent.ask("peers"))
            link = Link("radio", device, a, DEVICE, HERE)
            wait_for(lambda: is_linked(agent), "the peer is linked")
            wait_for(lambda: NOTICED in agent.log(), "the new network is noticed")
            noticed = agent.log().count(NOTICED)
            link.down()
            wait_for(lambda: agent.log().count(NOTICED) > noticed, "its end is noticed")
            link.up()
            agent.stop()
            peer.stop()
        finally:
            agent.end()
            peer.end()


def is_linked(agent: AgentProcess) -> bool:
    return any(one["name"] == "peer" and one["state"] == "connected" for one in agent.ask("peers"))
