"""What waits in the files of parts that the settings have turned off, so that somebody learns it (M2, M20).

The parts of MQTT and the relay run on for what they hold (:mod:`edge.agent.agent`). What waits for the platform, or in
the mesh's store, has no other way: it stays until that part is on again.
"""

import logging
from pathlib import Path
from typing import Final

from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.settings import AgentSettings
from edge.client.errors import StoreError

OUTBOX: Final = "outbox"
MESH: Final = "mesh"
_WHY: Final = {OUTBOX: "[platform] is not set", MESH: "mesh.enabled is false"}

_log: Final = logging.getLogger("waystation.agent")


def left_over(settings: AgentSettings) -> dict[str, int]:
    """How many messages wait, by part, without those where none do; says so in the log. A file that cannot be read is
    in the log only: its part is off."""
    directory = Path(settings.store.directory)
    counts = {}
    if not settings.platform.is_set:
        counts[OUTBOX] = _in_outbox
    if not settings.mesh.enabled:
        counts[MESH] = _in_mesh
    found = {}
    for part, count in counts.items():
        if not (directory / part).exists():
            continue
        try:
            messages = count(directory / part, settings)
        except StoreError as error:
            _log.warning("%s, and what waits for it cannot be counted: %s", _WHY[part], error)
            continue
        if messages:
            found[part] = messages
            _log.warning("%s, and messages wait for it: %d. They stay until it is on again", _WHY[part], messages)
    return found


def _in_outbox(path: Path, settings: AgentSettings) -> int:
    store = ExactStore(path, settings.client_id, settings.store.log_entries)
    try:
        return store.recover().messages
    finally:
        store.close()


def _in_mesh(path: Path, settings: AgentSettings) -> int:
    from edge.node.bundle_store import BundleStore  # cryptography takes memory: only when it is used

    mesh = settings.mesh
    store = BundleStore(path, settings.client_id, 0, receipts=mesh.receipts, certificates=mesh.certificates)
    try:
        found = store.recover()
        return len(found.bundles) + len(found.unsealed)
    finally:
        store.close()
