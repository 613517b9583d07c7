"""TCP and UDP sources over real sockets: cut, resumed, doubled, out of order, too fast (S2)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from edge.feeds.adapter.address import Address
from edge.feeds.adapter.mold_order import MoldLimits
from edge.feeds.adapter.source_choice import Source
from edge.feeds.adapter.sources.mold import MoldSource
from edge.feeds.adapter.sources.stream import PipeSource, TcpListenSource, TcpSource
from edge.feeds.adapter.sources.udp import ParsedDatagrams, UdpSource
from edge.feeds.errors import SourceUnusable
from edge.feeds.formats.lines import Content, LineParser
from edge.feeds.formats.moldudp64 import SESSION_BYTES, build_downstream, parse_request
from edge.reconnect import FullJitter
from tests.unit.edge.feeds.adapter.adapter_data import KeptIntake
from tests.unit.edge.feeds.adapter.sources.test_file_source import PATIENCE_S, until

HOST = "127.0.0.1"
UNANSWERED_S = 30.0


def make(_: object) -> LineParser:
    return LineParser(lambda _: Content(), "src")


@contextlib.asynccontextmanager
async def running(source: Source) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(source.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_server_that_cuts_connections() -> None:
    """The torn line is no message, and the next connection begins anew; the state is said."""
    intake = KeptIntake()
    served = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1
        writer.write(b"%d a\n%d b" % (served, served))
        await writer.drain()
        if served == 2:
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def scenario() -> None:
        async with await asyncio.start_server(serve, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with running(TcpSource(HOST, port, make, intake, FullJitter(0.01, 0.02), UNANSWERED_S)):
                await until(lambda: b"4 a" in intake.payloads)

    asyncio.run(scenario())
    assert set(intake.payloads) <= {b"%d a" % number for number in range(1, served + 1)}
    assert {"up", "source_lost"} == set(intake.states)
    assert {one.reason for one in intake.malformed} == {"the connection ended within a line"}


def test_a_server_that_is_not_there_yet() -> None:
    intake = KeptIntake()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x\n")
        writer.close()
        await writer.wait_closed()

    async def scenario() -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        async with running(TcpSource(HOST, port, make, intake, FullJitter(0.01, 0.02), UNANSWERED_S)):
            await until(lambda: "source_lost" in intake.states)
            async with await asyncio.start_server(serve, HOST, port):
                await until(lambda: b"x" in intake.payloads)

    asyncio.run(scenario())


def test_a_listener_reads_one_connection_after_the_other() -> None:
    intake = KeptIntake()
    ports: list[int] = []

    async def scenario() -> None:
        async with running(TcpListenSource(HOST, 0, make, intake, UNANSWERED_S, on_listening=ports.append)):
            await until(lambda: bool(ports))
            _, first = await asyncio.open_connection(HOST, ports[0])
            first.write(b"1\n")
            await until(lambda: intake.payloads == [b"1"])
            _, second = await asyncio.open_connection(HOST, ports[0])
            second.write(b"3\n")
            await second.drain()
            first.write(b"2\n")
            await until(lambda: intake.payloads == [b"1", b"2"])
            first.close()
            await until(lambda: intake.payloads == [b"1", b"2", b"3"])
            for one in (first, second):
                one.close()
                await one.wait_closed()

    asyncio.run(scenario())


def test_connections_beyond_the_limit_are_refused_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Once until another one is taken, however often they try."""
    ports: list[int] = []

    async def refused() -> None:
        reader, writer = await asyncio.open_connection(HOST, ports[0])
        assert await reader.read() == b""
        writer.close()

    async def scenario() -> None:
        source = TcpListenSource(HOST, 0, make, KeptIntake(), UNANSWERED_S, waiting_max=1, on_listening=ports.append)
        async with running(source):
            await until(lambda: bool(ports))
            taken = [await asyncio.open_connection(HOST, ports[0]) for _ in range(2)]
            for _ in range(3):
                await refused()
            assert caplog.text.count("refuses connections, the first from 127.0.0.1:") == 1
            for _, writer in taken:
                writer.close()

    asyncio.run(scenario())


def probed_in_s(port: int, peer_port: int) -> float | None:
    """When the kernel probes the connection between two local ports, at the end that has `port`; None if it does not
    (proc(5): timer 2 of /proc/net/tcp is that of probes, its time is in hundredths of a second)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, _, timer, *_ = line.split()
        if [int(one.rpartition(":")[2], 16) for one in (local, remote)] == [port, peer_port]:
            kind, _, left = timer.partition(":")
            return int(left, 16) / 100 if int(kind, 16) == 2 else None
    return None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux says which connections it probes")
def test_a_peer_that_is_gone_without_a_word_is_noticed() -> None:
    """Its power has failed, or its address has moved: adapters send nothing, so only probes tell it from a source that
    is silent. A connection that waits for its turn is probed, too."""
    intake = KeptIntake()
    ports: list[int] = []
    peers: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)

    def is_probed(port: int, peer_port: int) -> bool:
        found = probed_in_s(port, peer_port)
        return found is not None and found <= UNANSWERED_S / 2

    async def scenario() -> None:
        server = await asyncio.start_server(serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        async with server, running(TcpSource(HOST, port, make, intake, FullJitter(0.01, 0.02), UNANSWERED_S)):
            await until(lambda: bool(peers))
            own_port = peers[0].get_extra_info("peername")[1]
            await until(lambda: is_probed(own_port, port))
            peers[0].close()
        async with running(TcpListenSource(HOST, 0, make, intake, UNANSWERED_S, on_listening=ports.append)):
            await until(lambda: bool(ports))
            for _ in range(2):
                _, writer = await asyncio.open_connection(HOST, ports[0])
                peer_port = writer.get_extra_info("sockname")[1]
                await until(lambda peer_port=peer_port: is_probed(ports[0], peer_port))  # type: ignore[misc]
                peers.append(writer)
        for one in peers:
            one.close()

    asyncio.run(scenario())


def test_an_address_that_is_taken_is_an_error() -> None:
    with socket.socket() as taken, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        taken.bind((HOST, 0))
        taken.listen()
        udp.bind((HOST, 0))
        intake = KeptIntake()
        with pytest.raises(SourceUnusable, match="cannot listen"):
            asyncio.run(TcpListenSource(HOST, taken.getsockname()[1], make, intake, UNANSWERED_S).run())
        address = Address("udp", host=HOST, port=udp.getsockname()[1])
        reader = ParsedDatagrams(make, intake, has_lines=True)
        with pytest.raises(SourceUnusable, match="cannot be bound"):
            asyncio.run(UdpSource(address, 65_536, reader, intake).run())


def test_a_pipe_ends_in_order_and_a_file_is_none() -> None:
    intake = KeptIntake()
    reading, writing = os.pipe()
    os.write(writing, b"1\n2")
    os.close(writing)

    async def scenario() -> None:
        await PipeSource(reading, make, intake).run()

    asyncio.run(scenario())
    os.close(reading)
    assert intake.payloads == [b"1", b"2"]
    with open(__file__, "rb") as file, pytest.raises(SourceUnusable, match="use file:PATH"):
        asyncio.run(PipeSource(file.fileno(), make, intake).run())


def send_to(port: int, *datagrams: bytes, to: str = HOST) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
        for one in datagrams:
            sock.sendto(one, (to, port))


@pytest.mark.parametrize("group", ["", "239.255.77.1"])
def test_datagrams_of_unicast_and_multicast(group: str) -> None:
    intake = KeptIntake()
    ports: list[int] = []
    address = Address("udp", host="0.0.0.0", port=0, group=group, interface=HOST if group else "")

    async def scenario() -> None:
        reader = ParsedDatagrams(make, intake, has_lines=True)
        async with running(UdpSource(address, 65_536, reader, intake, ports.append)):
            await until(lambda: bool(ports))
            send_to(ports[0], b"1\n2\n", b"3", to=group or HOST)
            await until(lambda: intake.payloads == [b"1", b"2", b"3"])

    asyncio.run(scenario())


def test_what_the_kernel_drops_is_counted() -> None:
    """A buffer of the kernel that is full: what it dropped shows with the next datagram that it keeps."""
    intake = KeptIntake()
    ports: list[int] = []

    async def scenario() -> None:
        reader = ParsedDatagrams(make, intake, has_lines=True)
        async with running(UdpSource(Address("udp", host=HOST, port=0), 4_096, reader, intake, ports.append)):
            await until(lambda: bool(ports))
            send_to(ports[0], *(b"%d " % number + bytes(500).hex().encode() for number in range(200)))
            await until(lambda: bool(intake.payloads))
            send_to(ports[0], b"end")
            await until(lambda: intake.payloads[-1] == b"end")
        assert len(intake.payloads) + intake.datagrams_lost == 201
        assert intake.datagrams_lost

    asyncio.run(scenario())


class RequestServer:
    """Answers requests of MoldUDP64 with what `messages` has, as many as fit a packet of three."""

    def __init__(self, messages: list[bytes], *, answers: Callable[[int], bool] = lambda _: True) -> None:
        self._messages, self._answers = messages, answers
        self.requests: list[tuple[int, int]] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((HOST, 0))
        self._sock.setblocking(False)
        self.port: int = self._sock.getsockname()[1]

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._asked)

    def _asked(self) -> None:
        data, where = self._sock.recvfrom(100)
        request = parse_request(data)
        self.requests.append((request.number, request.count))
        if self._answers(len(self.requests)):
            found = self._messages[request.number - 1 : request.number - 1 + min(3, request.count)]
            self._sock.sendto(build_downstream(request.session, request.number, found), where)

    def close(self) -> None:
        self._sock.close()


def test_moldudp64_with_losses_copies_and_disorder_over_real_sockets() -> None:
    """S2: what is missing is requested until it comes; a packet that somebody else sends to the port that asks is not
    taken."""
    sent = [b"%d" % number for number in range(1, 41)]
    packets = {number: build_downstream("DAY1", number, [sent[number - 1]]) for number in range(1, 41)}
    intake = KeptIntake()
    ports: list[int] = []

    async def scenario() -> None:
        server = RequestServer(sent, answers=lambda count: count % 2 == 0)
        server.start()
        limits = MoldLimits(
            reorder_ms=5, has_server=True, request_ms=15, within_ms=PATIENCE_S * 1000, requests_per_s=500
        )
        address = Address("udp", host=HOST, port=0)
        source = MoldSource("m", address, (HOST, server.port), limits, 65_536, intake, ports.append)
        async with running(source):
            await until(lambda: bool(ports))
            order = [1, 3, 2, 2, 4, 20, 19, 7, 21, 21, 25, 30]
            send_to(ports[0], *(packets[number] for number in order), b"junk", packets[1][:15])
            send_to(ports[0], build_downstream("DAY1", 41, []))
            await until(lambda: len(intake.payloads) == 40)
            assert source._requests is not None
            send_to(source._requests.getsockname()[1], build_downstream("DAY1", 41, [b"forged"]))
            send_to(ports[0], build_downstream("DAY1", 41, [b"real"]))
            await until(lambda: len(intake.payloads) == 41)
        asyncio.get_running_loop().remove_reader(server._sock.fileno())
        server.close()
        assert server.requests

    asyncio.run(scenario())
    assert intake.payloads == [*sent, b"real"]
    assert len(intake.malformed) == 2
    assert len(packets[1]) > SESSION_BYTES
