"""Links between nodes: who is let in, what a hostile peer can do, and one contact a pair (M5, M7, M17)."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from bundles import revocations as revocation_format
from bundles.certificates import issue, new_authority
from bundles.errors import SignatureError
from bundles.identity import Identity
from bundles.receipt import Role
from edge.mesh.contact_frames import Hello, encode
from edge.node.node import MeshNode
from edge.node.tls import LinkTls
from edge.reconnect import FullJitter
from tests.unit.bundles.keys import AUTHORITY, authority_key, certificate, identity, key, sealing_key
from tests.unit.edge.given_up import MOMENTS, given_up
from tests.unit.edge.node.node_host import NOW_S, Join, NodeHost, certificates, eventually, send

DAY_S = 86_400


@asynccontextmanager
async def tls_link(
    node: MeshNode, who: Identity, directory: Path
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A link that a peer of any kind has opened."""
    tls = LinkTls(AUTHORITY, directory)
    tls.use(who)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port, ssl=tls.client, server_hostname="")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def hello(name: str) -> bytes:
    return encode(Hello(name, 1, False, 0.0, 65_536, 1 << 20, 0))


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(20):
            return await reader.read(-1)
    except OSError:
        return b""


def expired() -> Identity:
    return identity("b", now_s=NOW_S - 30 * DAY_S)


def of_another_authority() -> Identity:
    other = new_authority("another", key("another authority"), NOW_S, 1_000 * DAY_S)
    keys = key("b").public_key(), sealing_key("b").public_key()
    return Identity(
        issue(other, key("another authority"), "b", *keys, {Role.RECIPIENT}, NOW_S), key("b"), [sealing_key("b")]
    )


@pytest.mark.parametrize("make", [expired, of_another_authority, lambda: identity("a", now_s=NOW_S)])
def test_no_contact_without_a_valid_certificate(make: object, tmp_path: Path) -> None:
    """M5: nor with our own name."""

    async def run() -> None:
        async with NodeHost("a", tmp_path).running() as node:
            async with tls_link(node, make(), tmp_path) as (reader, writer):  # type: ignore[operator]
                writer.write(hello("b"))
                assert await read_to_end(reader) == b""
            assert not len(node.contacts)

    asyncio.run(run())


def test_revoked_names_are_not_let_in_and_their_contacts_end(tmp_path: Path) -> None:
    """M5: the list is kept over a restart."""

    async def run() -> None:
        a, who = NodeHost("a", tmp_path), identity("b", now_s=NOW_S)
        async with a.running() as node:
            async with tls_link(node, who, tmp_path) as (reader, writer):
                writer.write(hello("b"))
                await eventually(lambda: "b" in node.contacts, "a contact")
                node.take_revocations(revocation_format.sign(1, 1, {"b": int(NOW_S) + 1}, authority_key()).encoded)
                assert b"revoked" in await read_to_end(reader)
            assert "b" not in node.contacts
            assert node.carrier.revocations == 1
        async with a.running() as node:
            assert node.carrier.revocations == 1
            async with tls_link(node, who, tmp_path) as (reader, writer):
                assert await read_to_end(reader) == b""

    asyncio.run(run())


def test_a_peer_that_was_revoked_while_we_were_offline(tmp_path: Path) -> None:
    """M5: the list comes with the first contact, from a peer that is not revoked; after a restart the revoked one is
    not let in, and nothing that it has written is taken, also not from others."""

    async def run() -> None:
        a, b, c = (NodeHost(name, tmp_path) for name in "abc")
        everybody = certificates("a", "b", "c")
        async with b.running(everybody) as revoked, c.running(everybody) as other:
            sent = await send(revoked, "@a", "early")
            async with a.running(everybody) as one:
                await Join(one, revoked).run(lambda: b.receipts == [sent])
            listed = revocation_format.sign(1, 1, {"b": int(NOW_S) + 1}, authority_key()).encoded
            other.take_revocations(listed)
            async with a.running() as one:
                await Join(one, other).run(lambda: one.carrier.revocations == 1)
            late = await send(revoked, "@a", "late")
            async with a.running() as one:
                async with tls_link(one, identity("b", now_s=NOW_S), tmp_path) as (reader, writer):
                    writer.write(hello("b"))
                    assert await read_to_end(reader) == b""
                held = revoked.carrier.held(late)
                assert held is not None
                [bundle] = await revoked.load([held])
                with pytest.raises(SignatureError):
                    await one.take(bundle)
            assert [message_id for message_id, _ in a.given] == [sent]

    asyncio.run(run())


def test_a_hello_with_another_name_ends_the_contact(tmp_path: Path) -> None:
    async def run() -> None:
        async with NodeHost("a", tmp_path).running() as node:
            async with tls_link(node, identity("b", now_s=NOW_S), tmp_path) as (reader, writer):
                writer.write(hello("c"))
                assert b"does not have the name of its certificate" in await read_to_end(reader)
            await eventually(lambda: not len(node.contacts), "no contact")

    asyncio.run(run())


ATTACKS = {
    "too large": b"\xff" * 100_000,
    "flood": b"\x00\x00\x00\x01\x09" * 30_000,
    "hello twice": hello("m") * 2,
    "not due": b"\x02\x00\x00\x00\x10" + bytes(16),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_ends_only_its_own_link(attack: bytes, tmp_path: Path) -> None:
    """M7: frames that are too large, floods, and frames that are not due."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path), NodeHost("b", tmp_path)
        async with a.running(certificates("b", "m")) as one, b.running(certificates("a")) as other:

            async def attacked() -> None:
                async with tls_link(one, identity("m", now_s=NOW_S), tmp_path) as (reader, writer):
                    writer.write(hello("m"))
                    await eventually(lambda: "m" in one.contacts, "a contact")
                    writer.write(attack)
                    assert b"broke the protocol" in await read_to_end(reader)
                await eventually(lambda: "m" not in one.contacts, "the contact has ended")
                sent = await send(one, "@b")
                await eventually(lambda: a.receipts == [sent], "the other contact goes on")

            attacking = asyncio.create_task(attacked())
            await Join(one, other).run(attacking.done)
            await attacking

    asyncio.run(run())


def test_who_says_nothing_is_closed(tmp_path: Path) -> None:
    """M7: without TLS, and without a hello."""

    async def run() -> None:
        a = NodeHost("a", tmp_path, handshake_s=0.3, idle_s=0.3)
        async with a.running() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            assert await read_to_end(reader) == b""
            writer.close()
            async with tls_link(node, identity("b", now_s=NOW_S), tmp_path) as (reader, _):
                assert b"nothing came" in await read_to_end(reader)

    asyncio.run(run())


def test_strangers_take_no_place_of_peers(tmp_path: Path) -> None:
    """M7: the oldest of them gives way; a link beyond the limit is closed at once."""

    async def run() -> None:
        a = NodeHost("a", tmp_path, connections=2, handshake_s=600.0)
        async with a.running() as node, AsyncExitStack() as stack:
            strangers = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(3)]
            assert await read_to_end(strangers[0][0]) == b""
            assert node.status()["links_refused"] == 1
            for name in ("b", "c"):
                await stack.enter_async_context(tls_link(node, identity(name, now_s=NOW_S), tmp_path))
                await eventually(lambda name=name: name in node.contacts, "a contact")  # type: ignore[misc]
            assert node.status()["links"] == 2
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            assert await read_to_end(reader) == b""
            for _, one in (*strangers, (reader, writer)):
                one.close()

    asyncio.run(run())


def test_dialling_may_be_given_up_at_any_moment(tmp_path: Path) -> None:
    """M7: another link can be opened after it, with the descriptor that its connection had."""
    a, b = (NodeHost(name, tmp_path) for name in "ab")

    async def run(turns: int) -> None:
        async with a.running() as one, b.running() as other:
            await given_up(one.links.dial("127.0.0.1", other.port, asyncio.Future()), turns)
            name: asyncio.Future[str] = asyncio.Future()
            dialled = asyncio.create_task(one.links.dial("127.0.0.1", other.port, name))
            await asyncio.wait([dialled, name], return_when=asyncio.FIRST_COMPLETED)
            assert name.done(), dialled
            dialled.cancel()
            await asyncio.wait([dialled])

    for turns in range(MOMENTS):
        asyncio.run(run(turns))


def test_two_that_dial_each_other_keep_one_link(tmp_path: Path) -> None:
    """M5: the same one at both ends: that of the lower name, if both are being opened."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path), NodeHost("b", tmp_path)
        async with a.running(certificates("b")) as one, b.running(certificates("a")) as other:
            for _ in range(3):
                one.dial("127.0.0.1", other.port)
                other.dial("127.0.0.1", one.port)

                def is_settled() -> bool:
                    found = [node.contacts.statuses() for node in (one, other)]
                    dialled = sorted([status.dialled for status in of_node] for of_node in found)
                    return dialled == [[False], [True]]

                await eventually(lambda: is_settled() and one.links.open == other.links.open == 1, "one link")
                await both_ways(a, one, b, other)
                one.contacts.end_all("once more")

    asyncio.run(run())


async def both_ways(a: NodeHost, one: MeshNode, b: NodeHost, other: MeshNode) -> None:
    sent = [await send(one, "@b"), await send(other, "@a")]
    await eventually(lambda: a.receipts[-1:] + b.receipts[-1:] == sent, "both arrive")


def test_nobody_between_can_read(tmp_path: Path) -> None:
    """M17: neither on the carrier's disk nor on the link is the payload."""
    secret = "attack at dawn " * 20

    async def run() -> list[bytes]:
        a, b, c = (NodeHost(name, tmp_path) for name in "abc")
        everybody = certificates("a", "b", "c")
        async with a.running(everybody) as one, b.running(everybody) as carrier, c.running(everybody) as other:
            await send(one, "@c", secret)
            first, second = Join(one, carrier), Join(carrier, other)
            await first.run(lambda: len(carrier.carrier) == 1)
            disk = [file.read_bytes() for file in sorted(b.directory.iterdir())]
            assert sum(map(len, disk)) > 1_000
            await second.run(lambda: len(c.given) == 1)
            assert c.given[0][1].payload == secret.encode()
            return [
                *disk,
                *(file.read_bytes() for file in b.directory.iterdir()),
                *map(bytes, first.sent + second.sent),
            ]

    for found in asyncio.run(run()):
        assert b"attack at dawn" not in found


def test_peers_learn_that_a_gateway_can_be_reached(tmp_path: Path) -> None:
    """M8: a carrier gets a message for the platform from a contact that was there before."""

    async def run() -> None:
        b = NodeHost("b", tmp_path, copies=1)
        keys = [*certificates("a", "b"), certificate("gateway", roles={Role.GATEWAY}, now_s=NOW_S)]
        async with b.running(keys) as other:
            a = NodeHost("a", tmp_path, copies=1, peers=[f"127.0.0.1:{other.port}"])
            async with a.running(keys) as one:
                await eventually(lambda: "b" in one.contacts, "a contact")
                sent = await send(one, "a/topic")
                assert not len(other.carrier)
                other.set_uplink(True)
                await eventually(lambda: sent in other.carrier, "the bundle")
                gateway = identity("gateway", roles={Role.GATEWAY}, now_s=NOW_S)
                await other.settle([gateway.receipt(sent, Role.GATEWAY, int(time.time() * 1000))])
                await eventually(lambda: a.receipts == [sent], "the receipt")
                assert not other.sendable(9)

    asyncio.run(run())


def test_a_peer_that_answers_too_late_is_offered_nothing(tmp_path: Path) -> None:
    """M3: every round trip is above this threshold; what the peer itself offers is taken."""

    async def run() -> None:
        b = NodeHost("b", tmp_path)
        async with b.running(certificates("a")) as other:
            a = NodeHost("a", tmp_path, peers=[f"127.0.0.1:{other.port}"], latency_ms=1e-6)
            async with a.running(certificates("b")) as one:
                await eventually(lambda: "b" in one.contacts and one.peers()[0].round_trip_ms is not None, "a pong")
                [peer] = one.peers()
                assert (peer.name, peer.state) == ("b", "unreachable")
                assert "round trip" in peer.problem
                assert one.status()["peers_unreachable"] == 1
                held = await send(one, "@b")
                sent = await send(other, "@a")
                await eventually(lambda: b.receipts == [sent], "the other way")
                assert held in one.carrier
                assert (b.given, other.peers()[0].state) == ([], "connected")

    asyncio.run(run())


def test_tls_is_1_3_and_the_key_is_not_left_on_disk(tmp_path: Path) -> None:
    tls = LinkTls(AUTHORITY, tmp_path)
    tls.use(identity("a", now_s=NOW_S))
    assert tls.server.minimum_version is tls.client.minimum_version is ssl.TLSVersion.TLSv1_3
    assert not list(tmp_path.iterdir())


def test_a_change_of_the_network_ends_the_pauses(tmp_path: Path) -> None:
    """M5: an address whose agent was not there is tried at once, not when its pause is over."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path), NodeHost("b", tmp_path)
        async with b.running(certificates("a")) as other:
            port = other.port
        a.settings = structs.replace(a.settings, peers=[f"127.0.0.1:{port}"])
        a.backoff = lambda: FullJitter(3_600.0, 3_600.0, lambda: 1.0)
        async with a.running(certificates("b")) as one:
            b.settings = structs.replace(b.settings, port=port)
            async with b.running(certificates("a")):
                await asyncio.sleep(0.1)
                assert "b" not in one.contacts
                await one.network_changed()
                await eventually(lambda: "b" in one.contacts, "a contact")

    asyncio.run(run())
