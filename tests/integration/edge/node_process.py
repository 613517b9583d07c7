"""A node as a process of its own, for tests that kill it: `python -m …node_process NAME DIRECTORY PORT PEERS MESSAGES`.

It submits messages until so many are accepted by all its processes. The application's part: what is accepted, given and
delivered is appended to files, and on disk when the call returns.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from bundles.bundle import Header, Kind
from bundles.content import Content
from bundles.receipt import Receipt
from edge.client.store_clock import running_s
from edge.node.node import MeshNode
from edge.node.settings import MeshSettings
from edge.reconnect import FullJitter
from tests.unit.bundles.keys import AUTHORITY, identity
from tests.unit.edge.node.node_host import certificates

NAMES = ("a", "b", "c")


class Notes:
    """Lines of a file, each on disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = path.read_text().splitlines() if path.exists() else []

    def add(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)


async def serve(name: str, directory: Path, port: int, peers: list[str], messages: int) -> None:
    given, told, accepted = (Notes(directory / f"{what}.txt") for what in ("given", "told", "accepted"))

    async def on_envelope(header: Header, content: Content) -> None:
        """As :class:`edge.agent.inbox_folder.InboxFolder`: recognises what it has had when it was killed."""
        if header.message_id not in given.lines:
            given.add(header.message_id)

    async def on_receipt(message_id: str, receipt: Receipt) -> None:
        if message_id not in told.lines:
            told.add(message_id)

    settings = MeshSettings(enabled=True, port=port, peers=peers)
    node = MeshNode(
        *(settings, directory, identity(name, now_s=time.time()), AUTHORITY),
        wall_s=time.time,
        running_s=running_s,
        on_envelope=on_envelope,
        on_receipt=on_receipt,
        backoff=lambda: FullJitter(0.02, 0.2),
    )
    async with node:
        for one in certificates(*NAMES):
            node.take_certificate(one.der)
        while len(accepted.lines) < messages:
            accepted.add(await node.submit(Kind.ENVELOPE, "@c", Content(b"text"), 3_600))
        await node.ended()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]), int(sys.argv[5])))
