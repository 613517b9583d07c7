"""What the client refuses before it accepts it, and how long it keeps the rest (M2)."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from edge.client.errors import (
    ClientClosed,
    DiskFull,
    Expired,
    LifetimeNotAllowed,
    MessageTooLarge,
    StoreFull,
)
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.message import MessageState
from edge.client.store import Batch
from mqtt.errors import LocalProtocolError
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY, client, complete
from tests.unit.edge.client.server_host import ServerHost


def test_limits_refuse_before_acceptance(tmp_path: Path) -> None:
    async def run() -> None:
        limits = Limits(messages=3, total_bytes=1_000, message_bytes=600, lifetime_s=100)
        async with client(NOBODY, store=tmp_path / "o", limits=limits) as one:
            await one.publish("t", b"x" * 500)
            with pytest.raises(MessageTooLarge, match="600"):
                await one.publish("t", b"x" * 600)
            with pytest.raises(StoreFull, match="1,000"):
                await one.publish("t", b"x" * 500)
            for wrong_s in (0, -1, 101, float("nan")):
                with pytest.raises(LifetimeNotAllowed):
                    await one.publish("t", lifetime_s=wrong_s)
            await one.publish("t")
            await one.publish("t")
            with pytest.raises(StoreFull, match="3 messages"):
                await one.publish("t")
            with pytest.raises(LocalProtocolError):
                await one.publish("a/+")
        async with client(NOBODY, store=tmp_path / "o", limits=limits) as again:
            with pytest.raises(StoreFull):
                await again.publish("t")

    complete(run())


def test_a_full_outbox_takes_messages_again_once_some_are_acknowledged() -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, limits=Limits(messages=2)) as one:
            for number in range(20):
                while True:
                    try:
                        await one.publish("t", b"%d" % number)
                        break
                    except StoreFull:
                        await one.drained()
            await one.drained()
            assert [packet.payload for packet in server.session.stored] == [b"%d" % number for number in range(20)]

    complete(run())


class Times:
    """Both clocks of a device."""

    def __init__(self) -> None:
        self.wall, self.running = 1_000_000.0, 50.0

    def options(self) -> dict[str, Any]:
        return {"wall_s": lambda: self.wall, "running_s": lambda: self.running}


@pytest.mark.parametrize("jump_s", [1e9, -1e9], ids=["set forward", "set back"])
def test_setting_the_clock_changes_no_lifetime(tmp_path: Path, jump_s: float) -> None:
    async def run() -> None:
        times = Times()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            message = await one.publish("t", lifetime_s=10)
            times.wall += jump_s
            times.running += 9
            await one._sending.expire()
            states = [message.state]
            times.running += 1
            with pytest.raises(Expired):
                await message.acknowledged
            states.append(message.state)
            assert states == [MessageState.ACCEPTED, MessageState.EXPIRED]
            await one.drained()

    complete(run())


@pytest.mark.parametrize(("away_s", "expires"), [(9.0, False), (11.0, True), (-1e9, False)])
def test_lifetimes_go_on_while_no_process_runs(tmp_path: Path, away_s: float, expires: bool) -> None:
    """By the wall clock; if it was set back, no time has passed. The application hears of messages it no longer has."""

    async def run() -> None:
        times, failed = Times(), list[tuple[int, str]]()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            await one.publish("t", lifetime_s=10)
        times.wall, times.running = times.wall + away_s, 3.0
        async with client(
            NOBODY, store=tmp_path / "o", on_failed=lambda m, e: failed.append((m.sequence, str(e))), **times.options()
        ) as again:
            await again._sending.expire()
            assert [sequence for sequence, _ in failed] == ([1] if expires else [])
            assert again._outbox.messages == (not expires)

    complete(run())


@pytest.mark.parametrize(("down_most_s", "expires"), [(100.0, False), (300.0, True)])
def test_a_clock_that_leaps_while_no_process_runs(tmp_path: Path, down_most_s: float, expires: bool) -> None:
    """M2: a device without a battery for its clock takes it in 1970, and has the right time at the next start."""

    async def run() -> None:
        times, limits = Times(), Limits(down_most_s=down_most_s)
        times.wall = 60.0
        async with client(NOBODY, store=tmp_path / "o", limits=limits, **times.options()) as one:
            await one.publish("t", lifetime_s=200)
        times.wall = 1_700_000_000.0
        async with client(NOBODY, store=tmp_path / "o", limits=limits, **times.options()) as again:
            await again._sending.expire()
            assert again._outbox.messages == (not expires)

    complete(run())


def test_the_rest_of_the_lifetime_goes_with_the_message(tmp_path: Path) -> None:
    async def run() -> None:
        times = Times()
        async with client(NOBODY, store=tmp_path / "o", **times.options()) as one:
            await one.publish("t", lifetime_s=100, content_type="text/plain", user_properties=[("a", "1")])
        times.wall += 60
        async with ServerHost() as server, client(server.url, store=tmp_path / "o", **times.options()) as again:
            await again.drained()
            assert server.session.stored[0].properties == {
                "message_expiry_interval": 40, "content_type": "text/plain", "user_property": [("a", "1")],
            }  # fmt: skip

    complete(run())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_message_that_is_sent_again_has_the_rest_of_its_lifetime(tmp_path: Path, is_killed: bool) -> None:
    """Otherwise a message that the gateway gets on the second connection would outlive its lifetime."""

    async def run() -> None:
        times = Times()
        async with ServerHost() as server, AsyncExitStack() as open_clients:
            one = await open_clients.enter_async_context(client(server.url, store=tmp_path / "o", **times.options()))
            await one.connected()
            server.is_deaf = True
            message = await one.publish("t", lifetime_s=100)
            await eventually(lambda: one._bearer.may_be_sent(1), "it is sent")
            times.wall, times.running = times.wall + 60, times.running + 60
            if is_killed:
                await one.close()
            server.is_deaf = False
            server.drop()
            if is_killed:
                again = client(server.url, store=tmp_path / "o", **times.options())
                await (await open_clients.enter_async_context(again)).drained()
            else:
                await message.acknowledged
            (stored,) = server.session.stored
            assert (stored.dup, stored.properties) == (True, {"message_expiry_interval": 40})

    complete(run())


def test_a_message_that_no_connection_has_sent_expires_and_one_that_was_sent_does_not() -> None:
    """Of those in the session. What became of one that was sent is for the server to say."""

    async def run() -> None:
        times = Times()
        async with ServerHost({"receive_maximum": 1}) as server:
            async with client(server.url, **times.options()) as one:
                await one.connected()
                server.is_deaf = True
                sent = await one.publish("t", b"sent", qos=2, lifetime_s=10)
                unsent = await one.publish("t", b"unsent", qos=2, lifetime_s=10)
                assert one._bearer.held == 2
                server.is_closed = True
                server.drop()
                await eventually(lambda: not one.is_connected, "the client notices")
                times.running += 11
                await one._sending.expire()
                assert (sent.state, unsent.state) == (MessageState.ACCEPTED, MessageState.EXPIRED)
                server.is_deaf = server.is_closed = False
                await sent.acknowledged
            assert [packet.payload for packet in server.session.stored] == [b"sent"]

    complete(run())


class FullStore(MemoryStore):
    is_full = False

    def commit(self, batch: Batch) -> None:
        if self.is_full:
            raise DiskFull("the disk is full")
        super().commit(batch)


@pytest.mark.parametrize("closes", [False, True])
def test_a_read_of_the_store_waits_while_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, closes: bool) -> None:
    """For the changes before it, which are tried again. So a message that is loaded next is sent, though a new one was
    refused."""
    monkeypatch.setattr("edge.client.outbox.DISK_FULL_S", 0.01)

    async def run() -> None:
        store = FullStore("van-7")
        async with client(NOBODY, store=store) as one:
            await one.publish("t", b"first")
            store.is_full = True
            refused = asyncio.create_task(one.publish("t", b"second"))
            reading = asyncio.create_task(one.on_store(lambda found: found.waiting(0, 10, 1_000)))
            with pytest.raises(StoreFull):
                await refused
            assert not reading.done()
            if not closes:
                store.is_full = False
                assert [message.payload for message in await reading] == [b"first"]
        if closes:
            with pytest.raises(ClientClosed):
                await reading

    complete(run())


def test_a_change_of_the_store_that_needs_space_does_not_end_the_client() -> None:
    async def run() -> None:
        def change(_: object) -> None:
            raise DiskFull("the disk is full")

        async with client(NOBODY) as one:
            with pytest.raises(DiskFull):
                await one.on_store(change)
            await one.publish("t")

    complete(run())
