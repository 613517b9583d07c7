"""A node of the mesh with many bundles: how long it takes to start, its memory, and what it stores in a second.

    python -m bench.mesh_node [--bundles 100000] [--payload 1000]

Prints a table; asserts nothing. Two nodes in this process share the work of the last row, so each takes about half of
its processor time.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bundles.bundle import Header, Kind, sign
from bundles.certificates import Authority, issue, new_authority
from bundles.content import Content
from bundles.identity import Identity
from bundles.receipt import Role
from edge.agent.process import keep_memory_small
from edge.node.batch import Batch, BundleRow
from edge.node.bundle_store import BundleStore
from edge.node.node import MeshNode
from edge.node.settings import MeshSettings
from edge.reconnect import FullJitter

LIFETIME_S = 604_800
AT_ONCE = 500


class People:
    """Identities of one authority, the same in each process."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes(32))
        self.authority: Authority = new_authority("bench", self._key, time.time(), LIFETIME_S)

    def identity(self, name: str, role: Role = Role.RECIPIENT) -> Identity:
        key = Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32))
        sealing_key = X25519PrivateKey.from_private_bytes(name.encode().ljust(32))
        keys = key.public_key(), sealing_key.public_key()
        made = issue(self.authority, self._key, name, *keys, {role}, time.time())
        return Identity(made, key, [sealing_key])

    def node(self, name: str, directory: Path) -> MeshNode:
        async def drop(*_: object) -> None:
            pass

        settings = MeshSettings(enabled=True, port=0, stored_bundles=1_000_000, stored_bytes=1 << 34)
        return MeshNode(
            *(settings, directory, self.identity(name), self.authority),
            wall_s=time.time,
            running_s=time.monotonic,
            on_envelope=drop,
            backoff=lambda: FullJitter(0.01, 0.1),
        )


def fill(directory: Path, count: int, payload: int, originator: str, before: int = 0) -> None:
    """Writes bundles of an originator into the store of `a`, whose own messages are those of `a`; so many were there
    `before`."""
    store, key = (
        BundleStore(directory / "mesh", "a", 7, receipts=1, certificates=100),
        People().identity(originator).key,
    )
    for first in range(before + 1, before + count + 1, 5_000):
        rows = [
            BundleRow(sign(_header(number, originator), bytes(payload), key), 8, 0.0)
            for number in range(first, min(first + 5_000, before + count + 1))
        ]
        store.commit(Batch(added={row.bundle.message_id: row for row in rows}))
    store.close()


def _header(number: int, originator: str) -> Header:
    return Header(originator, 7, number, f"@device-{number % 100}", Kind.ENVELOPE, 1_700_000_000_000, LIFETIME_S)


async def start(directory: Path) -> None:
    """Prints the seconds of a start, and the resident memory after it and at most, in MB."""
    began, processor_s = time.perf_counter(), time.process_time()
    async with People().node("a", directory) as node:
        took, processor_s = time.perf_counter() - began, time.process_time() - processor_s
        print(
            f"start with {len(node.carrier):>9,} bundles: {took:6.2f} s, {processor_s:6.2f} s of processor time, "
            f"resident {resident_mb('VmRSS'):5.1f} MB, {resident_mb('VmHWM'):5.1f} at most"
        )


def resident_mb(field: str) -> float:
    """Of this process, in millions of bytes; `field` of /proc/self/status: `VmRSS` is now, `VmHWM` the most so far."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) * 1024 / 1e6


async def throughput(directory: Path, count: int, payload: int) -> None:
    """Prints bundles a second, submitted and carried over a link."""
    people = People()
    for name in "ab":
        (directory / name).mkdir()
    async with people.node("a", directory / "a") as a, people.node("b", directory / "b") as b:
        for node in (a, b):
            for name in "abc":
                node.take_certificate(people.identity(name).certificate.der)

        async def submit() -> None:
            content = Content(bytes(payload))
            for _ in range(0, count, AT_ONCE):
                await asyncio.gather(*(a.submit(Kind.ENVELOPE, "@c", content, 3_600) for _ in range(AT_ONCE)))

        await measured("submitted, on disk", count, submit)

        async def carry() -> None:
            b.dial("127.0.0.1", a.port)
            while len(b.carrier) < count:
                await asyncio.sleep(0.01)

        await measured("over one link, on disk", count, carry)


async def measured(what: str, count: int, part: Callable[[], object]) -> None:
    wall_s, processor_s = time.perf_counter(), time.process_time()
    await part()  # type: ignore[misc]
    wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s
    print(f"{what:<24} {count / wall_s:8,.0f} a second of wall time, {count / processor_s:8,.0f} of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=1_000)
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    keep_memory_small()  # as `agent up` does
    if arguments.start is not None:
        asyncio.run(start(arguments.start))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for count, originator in ((1, "x"), (arguments.bundles, "x"), (arguments.bundles, "a")):
            store = directory / f"{originator}{count}"
            store.mkdir()
            fill(store, count, arguments.payload, originator)
            subprocess.run([sys.executable, "-m", "bench.mesh_node", "--start", str(store)], check=True)
        asyncio.run(throughput(directory, 5_000, arguments.payload))


if __name__ == "__main__":
    main()
