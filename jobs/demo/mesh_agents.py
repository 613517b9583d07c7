"""The files of the mesh's demo: an authority, the platform's identity, and a directory for each agent (M5).

mesh/authority/            waystation ca init
mesh/platform/             waystation ca gateway
mesh/gateway.toml          an overlay for the stack: its gateway takes bundles
mesh/<place>/agent.toml    an agent's settings, as for `waystation agent up`
mesh/<place>/store/        its store, with its identity (waystation ca issue)
mesh/<place>/inbox/        files that came for it
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bundles.receipt import Role
from edge.enrol import authority_files
from edge.enrol.authority_files import AuthorityFiles
from edge.enrol.identity_files import AUTHORITY, CERTIFICATE, KEY, SEALING_KEY
from jobs.demo.forwarder import HOST
from jobs.demo.mesh_plan import MeshPlan, agent_of

DIRECTORY = "mesh"
PLATFORM = "platform"

# Times are those of a day that takes a minute and a half: an hour of flights is a few seconds.
_AGENT = """\
client_id = {client_id}

[store]
directory = "store"

[folders]
enabled = true
inbox = "inbox"

[mesh]
enabled = true
port = 0
peers = {peers}
handshake_s = 3.0
idle_s = 10.0
"""
_PLATFORM = """
[platform]
connect_points = ["mqtt://{host}:{mqtt}"]
connect_timeout_s = 2.0
ping_timeout_s = 5.0
keep_alive_s = 10
reconnect_most_s = 0.4

[uplink]
enabled = true
probe_s = 1.0
good_to_come_up = 1
bad_to_go_down = 2
retry_first_s = 0.2
retry_most_s = 0.5
request_s = 10.0
answer_s = 5.0
patience_s = 3.0
claim_s = 5.0
recheck_s = 1.0
withheld_s = 60.0
mesh_s = 30.0

[[uplink.bearers]]
name = "lan"
url = "http://{host}:{http}"
"""
_GATEWAY = """\
# The gateway of the mesh's demo. Its access point is off: agents use the address that they have, which leads through
# the demo, where their uplink is cut.
[gateway.access_point]
enabled = false

# As long as the claims of agents.
[presence]
claim_s = 5.0

[gateway.mesh]
enabled = true
"""


class Uplinks(NamedTuple):
    """The ports through which an airport's agent reaches the gateway."""

    mqtt: int
    http: int


class MeshFiles:
    """In the demo's directory `data`."""

    def __init__(self, data: Path) -> None:
        self._data = data / DIRECTORY

    @property
    def overlay(self) -> Path:
        """For the stack."""
        return self._data / "gateway.toml"

    def settings(self, place: str) -> Path:
        """The agent's file."""
        return self._data / place / "agent.toml"

    def store(self, place: str) -> Path:
        """The directory with its control socket."""
        return self._data / place / "store"

    def inbox(self, place: str) -> Path:
        """Where files for it come."""
        return self._data / place / "inbox"

    def make(self, plan: MeshPlan, uplinks: Mapping[str, Uplinks], links: Mapping[str, int]) -> None:
        """Writes all of it. `uplinks` by airport; `links`: by aircraft, the port of the place where it stands. Raises
        IdentityFilesError."""
        authority_files.init(self._data / "authority", "the demo's mesh", time.time())
        authority = AuthorityFiles(self._data / "authority", time.time)
        platform = self._data / "platform"
        authority.issue(PLATFORM, {Role.GATEWAY}, platform)
        self.overlay.write_text(_GATEWAY + _files(platform), encoding="utf-8")
        for place in (*plan.airports, *plan.aircraft):
            peers = [f"{HOST}:{links[place]}"] if place in links else []
            text = _AGENT.format(client_id=json.dumps(agent_of(place)), peers=json.dumps(peers))
            if place in uplinks:
                text += _PLATFORM.format(host=HOST, mqtt=uplinks[place].mqtt, http=uplinks[place].http)
            authority.issue(agent_of(place), {Role.RECIPIENT}, self.store(place) / "identity")
            self.settings(place).write_text(text, encoding="utf-8")


def _files(platform: Path) -> str:
    """The keys of `[gateway.mesh]` that name the platform's files. JSON's strings are TOML's."""
    names = {"authority_file": AUTHORITY, "certificate_file": CERTIFICATE, "key_file": KEY}
    lines = [f"{key} = {json.dumps(str(platform / name))}" for key, name in names.items()]
    return "\n".join([*lines, f"sealing_key_files = [{json.dumps(str(platform / SEALING_KEY))}]", ""])
