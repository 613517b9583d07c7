"""The mail network without a platform: an agent that moves is all that connects the two places (M5-M8, M15, M18).

namespace a                                                               namespace b
programs ─► agent near            namespace c: agent courier          agent far ◄─ programs
Postfix, Dovecot ◄─┘  └╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ link ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┘  └─► Postfix, Dovecot

The link is one cable, whose end is in a or in b. The courier knows one address, at which whoever is there answers.
"""

import contextlib
from pathlib import Path

from tests.agent_process import AgentProcess
from tests.integration.edge.mesh_authority import MeshAuthority
from tests.mail_network import LIFETIME_S, MAIL, MAIL_BYTES, SUBMISSION, MailNetwork
from tests.namespaces import Link, Namespace
from tests.waiting import wait_for

COURIER_IP, PLACE_IP = "10.3.0.2", "10.3.0.1"
PORT = 4660
MESH = """
client_id = "{name}"
[mesh]
enabled = true
host = "0.0.0.0"
port = {port}
peers = {peers}
idle_s = 2.0
handshake_s = 5.0
redial_most_s = 0.5
"""


class MailWall:
    """`with MailWall(network, directory) as wall`: meanwhile the network's own agents are stopped. The courier is at b
    first."""

    def __init__(self, network: MailNetwork, directory: Path) -> None:
        directory.mkdir()
        self._network, self._directory, self._authority = network, directory, MeshAuthority(directory)

    def __enter__(self) -> "MailWall":
        network = self._network
        with contextlib.ExitStack() as stack:
            c = stack.enter_context(Namespace("c"))
            self._link = Link("visit", c, network.b, COURIER_IP, PLACE_IP)
            for agent in (network.near, network.far):
                agent.stop()
                stack.callback(agent.start)
            self.near = self._member("near", network.a, self._mail("a.example", "far", "b.example"))
            self.far = self._member("far", network.b, self._mail("b.example", "near", "a.example"))
            self.courier = self._member("courier", c, "", f'["{PLACE_IP}:{PORT}"]')
            for agent in (self.near, self.far, self.courier):
                stack.callback(agent.end)
                agent.start()
            self._stack = stack.pop_all()
        self._wait_for_contact("far")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def go_to_near(self) -> None:
        """Returns once the courier has a contact there."""
        self._link.move(self._network.a, PLACE_IP)
        self._wait_for_contact("near")

    def go_to_far(self) -> None:
        self._link.move(self._network.b, PLACE_IP)
        self._wait_for_contact("far")

    def held(self, agent: AgentProcess) -> int:
        """How many bundles it holds."""
        return int(agent.status()["mesh"]["bundles"])

    def settle(self) -> None:
        """Returns once no agent and no Postfix has anything left to deliver."""
        network = self._network

        def is_settled() -> bool:
            agents = [agent.status() for agent in (self.near, self.far, self.courier)]
            waiting = sum(one["mesh"]["bundles"] + one["mesh"]["inbox_messages"] for one in agents)
            waiting += sum(one.get("relay", {}).get("messages", 0) for one in agents)
            return waiting == 0 and network.near_mail.is_idle() and network.far_mail.is_idle()

        wait_for(is_settled, "all mail is delivered, and all receipts have come")

    def _wait_for_contact(self, name: str) -> None:
        def has_contact() -> bool:
            peers = self.courier.ask("peers")
            return [one["name"] for one in peers if one["state"] == "connected"] == [name]

        wait_for(has_contact, f"the courier meets {name}")

    def _member(self, name: str, inside: Namespace, more: str, peers: str = "[]") -> AgentProcess:
        process = AgentProcess(self._directory / name, MESH.format(name=name, port=PORT, peers=peers) + more, inside)
        self._authority.issue(name, process.directory / "agent" / "identity")
        return process

    def _mail(self, here: str, other: str, there: str) -> str:
        return MAIL.format(
            here=here,
            other=other,
            there=there,
            submission=SUBMISSION,
            mail_bytes=MAIL_BYTES,
            lifetime_s=LIFETIME_S,
        )
