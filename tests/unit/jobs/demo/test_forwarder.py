"""The demo's forwarder and network: cut means cut, for connections that are open and for new ones (M18)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from jobs.demo.forwarder import HOST, Forwarder
from jobs.demo.mesh_network import Network
from jobs.demo.mesh_plan import Arrive, Leave, Uplink

PATIENCE_S = 10.0


@asynccontextmanager
async def echo(mark: bytes) -> AsyncIterator[int]:
    """A server that sends back what it gets, with a mark in front; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(mark + line)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def the_rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@asynccontextmanager
async def forwarder() -> AsyncIterator[Forwarder]:
    made = Forwarder()
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def asked(port: int) -> bytes:
    """The answer over a new connection; empty if it is cut."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(b"hello\n")
            return await reader.readline()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def test_it_leads_where_it_is_told_to() -> None:
    async def run() -> None:
        async with echo(b"1 ") as first, echo(b"2 ") as second, forwarder() as made:
            assert await asked(made.port) == b""
            made.lead_to(HOST, first)
            assert await asked(made.port) == b"1 hello\n"
            made.lead_to(HOST, second)
            assert await asked(made.port) == b"2 hello\n"
            assert (made.accepted, made.refused) == (2, 1)

    asyncio.run(run())


@pytest.mark.parametrize("moves", [True, False])
def test_open_connections_are_cut(*, moves: bool) -> None:
    async def run() -> None:
        async with echo(b"") as port, echo(b"") as other, forwarder() as made, asyncio.timeout(PATIENCE_S):
            made.lead_to(HOST, port)
            reader, writer = await asyncio.open_connection(HOST, made.port)
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            if moves:
                made.lead_to(HOST, other)
            else:
                made.cut()
            assert await the_rest(reader) == b""
            writer.close()

    asyncio.run(run())


def test_the_same_target_again_cuts_nothing() -> None:
    async def run() -> None:
        async with echo(b"") as port, forwarder() as made, asyncio.timeout(PATIENCE_S):
            made.lead_to(HOST, port)
            reader, writer = await asyncio.open_connection(HOST, made.port)
            writer.write(b"1\n")
            await reader.readline()
            made.lead_to(HOST, port)
            writer.write(b"2\n")
            assert await reader.readline() == b"2\n"
            writer.close()

    asyncio.run(run())


def test_before_it_is_open_and_after_it_is_closed_connections_are_refused() -> None:
    async def run() -> None:
        made = Forwarder()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOST, made.port))
        await made.open()
        await made.close()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOST, made.port))
        never_opened = Forwarder()
        await never_opened.close()

    asyncio.run(run())


def test_a_target_where_nobody_listens_ends_the_connection() -> None:
    async def run() -> None:
        async with forwarder() as made:
            with socket.socket() as taken:
                taken.bind((HOST, 0))
                made.lead_to(HOST, taken.getsockname()[1])
                assert await asked(made.port) == b""

    asyncio.run(run())


def test_aircraft_reach_the_airport_where_they_stand_and_uplinks_are_cut() -> None:
    async def run() -> None:
        async with echo(b"gateway ") as gateway, echo(b"JFK ") as jfk, echo(b"BOS ") as bos:
            network = Network(["JFK", "BOS"], ["N1"])
            try:
                ports = {"agent-JFK": jfk, "agent-BOS": bos}
                await network.open((HOST, gateway), (HOST, gateway), ports)
                uplink, link = network.uplinks["JFK"], network.links["N1"]
                assert await asked(link) == b""
                network.do(Arrive("N1", "JFK"))
                assert await asked(link) == b"JFK hello\n"
                network.do(Leave("N1", "JFK"))
                assert (await asked(link), network.standing) == (b"", {})
                network.do(Arrive("N1", "BOS"))
                assert await asked(link) == b"BOS hello\n"
                network.do(Uplink("JFK", is_up=False))
                assert [await asked(port) for port in uplink] == [b"", b""]
                assert await asked(network.uplinks["BOS"].http) == b"gateway hello\n"
                network.do(Uplink("JFK", is_up=True))
                assert [await asked(port) for port in uplink] == [b"gateway hello\n"] * 2
            finally:
                await network.close()

    asyncio.run(run())
