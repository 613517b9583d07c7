"""Nodes of the mesh, on disk and over TLS (M2, M5, M7, M8, M14, M15, M17)."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.edge.node.node_host import Join, NodeHost, certificates, eventually, send


def test_a_message_travels_over_a_carrier_that_moves(tmp_path: Path) -> None:
    """M8, M15, M17: each node is alone with the carrier, never the originator with the recipient."""

    async def run() -> None:
        a, b, c = (NodeHost(name, tmp_path) for name in "abc")
        everybody = certificates("a", "b", "c")
        async with a.running(everybody) as one, b.running(everybody) as carrier, c.running(everybody) as other:
            sent = [await send(one, "@c", f"text {number}") for number in range(20)]
            await Join(one, carrier).run(lambda: len(carrier.carrier) == 20)
            await Join(carrier, other).run(lambda: len(c.given) == 20 and not len(carrier.carrier))
            assert [message_id for message_id, _ in c.given] == sent
            assert [content.payload for _, content in c.given] == [b"text %d" % number for number in range(20)]
            await Join(carrier, one).run(lambda: len(a.receipts) == 20)
            assert sorted(a.receipts) == sorted(sent)
            assert not len(one.carrier)

    asyncio.run(run())


def test_over_tls(tmp_path: Path) -> None:
    async def run() -> None:
        b = NodeHost("b", tmp_path)
        async with b.running(certificates("a")) as other:
            a = NodeHost("a", tmp_path, peers=[f"127.0.0.1:{other.port}"])
            async with a.running(certificates("b")) as one:
                await eventually(lambda: "b" in one.contacts and "a" in other.contacts, "a contact")
                sent = await send(one, "@b")
                await eventually(lambda: a.receipts == [sent], "the receipt")
                assert [message_id for message_id, _ in b.given] == [sent]
                assert one.peers()[0].name == "b"
                assert one.peers()[0].dialled

    asyncio.run(run())


def test_ciphertexts_are_on_disk_until_they_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M2: more of them than memory takes, some larger than all of it."""
    monkeypatch.setattr("edge.node.disk_carrier.CACHE_BYTES", 10_000)
    texts = [f"{number}" * (1 + number * 400) for number in range(40)]

    async def run() -> None:
        a, b, c = (NodeHost(name, tmp_path) for name in "abc")
        everybody = certificates("a", "b", "c")
        async with a.running(everybody) as one:
            await asyncio.gather(*(send(one, "@c", text) for text in texts))
        async with a.running() as one, b.running(everybody) as carrier:
            await Join(one, carrier).run(lambda: len(carrier.carrier) == len(texts))
        async with b.running() as carrier, c.running(everybody) as other:
            await Join(carrier, other).run(lambda: len(c.given) == len(texts))
        assert sorted(content.payload.decode() for _, content in c.given) == sorted(texts)

    asyncio.run(run())
