"""Requests that the client sends again, because no reply has come in time (R6)."""

import asyncio

import pytest

from edge.client.errors import NoReply
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client, complete, url_of
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.gateway.host.socket_gateway import SocketGateway

REPEATED = ("request-repeated", "true")


def test_it_is_sent_again_with_a_mark() -> None:
    """R6: with the same correlation data, for the rest of the time, and without a receipt. Not after the reply."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url, "asker") as asker:
            await asker.connected()
            pairs = iter([("a", "b")])
            asking = asyncio.create_task(
                asker.request("questions", b"?", timeout_s=60, again_after_s=0.1, user_properties=pairs)
            )
            await eventually(lambda: len(server.session.stored) > 2, "the request, again and again")
            first, *others = [packet.properties or {} for packet in server.session.stored]
            assert first["user_property"] == [("a", "b"), ("receipt", "failed")]
            for other in others:
                assert other["user_property"] == [("a", "b"), REPEATED]
                assert other["correlation_data"] == first["correlation_data"]
                assert other["response_topic"] == first["response_topic"]
                assert other["message_expiry_interval"] <= first["message_expiry_interval"]
            server.deliver("@asker", b"!", 1, {"correlation_data": first["correlation_data"]})
            assert (await asking).payload == b"!"
            await asker.drained()
            sent = len(server.session.stored)
            with pytest.raises(NoReply):
                await asker.request("others", timeout_s=0.5)
            assert [packet.topic for packet in server.session.stored[sent:]] == ["others"]

    complete(run())


def test_nothing_piles_up_while_no_gateway_answers() -> None:
    """R6, M2: it is sent again once a gateway has had it for so long."""

    async def run() -> None:
        async with ServerHost() as server, client(server.url, "asker") as asker:
            await asker.connected()
            await asker.open_inbox()
            server.is_deaf = True
            with pytest.raises(NoReply):
                await asker.request("questions", timeout_s=0.5, again_after_s=0.02)
            server.is_deaf = False
            server.drop()
            await asker.drained()
            assert len([packet for packet in server.session.stored if packet.topic == "questions"]) <= 1

    complete(run())


def test_the_next_receiver_answers(gateway: SocketGateway) -> None:
    """R6: a receiver that acknowledges and is gone leaves the request to the next member."""

    async def run() -> None:
        async with client(url_of(gateway), "asker") as asker:
            names, given, joined = ("one", "two"), asyncio.Queue[tuple[str, bool]](), asyncio.Barrier(3)

            async def take(name: str) -> None:
                async with client(url_of(gateway), name) as member:
                    await member.subscribe("$share/g/questions")
                    await joined.wait()
                    async for message in member.messages():
                        given.put_nowait((name, message.is_repeated))
                        message.acknowledge()
                        if not message.is_repeated:
                            return
                        await member.reply(message, name)

            members = [asyncio.create_task(take(name)) for name in names]
            await joined.wait()
            reply = await asker.request("questions", timeout_s=60, again_after_s=0.5)
            assert [given.get_nowait() for _ in range(2)] == [
                (next(name for name in names if name.encode() != reply.payload), False),
                (reply.payload.decode(), True),
            ]
            for member in members:
                member.cancel()

    complete(run())


@pytest.mark.parametrize("again_after_s", [0, -1, float("nan")])
def test_the_time_must_be_above_0(again_after_s: float) -> None:
    async def run() -> None:
        async with ServerHost() as server, client(server.url, "asker") as asker:
            with pytest.raises(ValueError, match="again_after_s must be above 0"):
                await asker.request("questions", timeout_s=1, again_after_s=again_after_s)

    complete(run())
