"""Feed adapters as processes on a real broker: killed, frozen, cut off, in pairs (S2, S4)."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from edge.feeds.formats.moldudp64 import build_downstream, parse_request
from feeds.message import FeedMessage
from feeds.registry_records import AdministrativeRequest, AdministrativeResult, RegistryKey
from harness.processes import Broker
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.edge.feed_adapter_process import (
    FEED,
    AdapterProcess,
    FeedReader,
    GrowingFile,
    ended,
    hold_and_wait,
    make_topics,
)

pytestmark = draw.over_processes

STREAM = "src@0"


@pytest.fixture
def reader(broker: LocalBroker, unique_prefix: str) -> Iterator[FeedReader]:
    found = FeedReader(broker.bootstrap, make_topics(broker.bootstrap, unique_prefix))
    yield found
    found.close()


def test_killed_again_and_again_its_log_is_complete(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S2: over `kill -9` at drawn moments each message of the file is in the log of the slot, once and in order, and
    the message sequence goes on."""
    draws = draw.generator("kills of a feed adapter")
    file = GrowingFile(tmp_path / "lines.csv")
    more = "[limits]\nbatch_messages=50\n[state]\nevery_s=0.05"
    adapter = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "a", "active", file.source, more)
    with ended(adapter):
        for _ in range(draw.times(2, 12)):
            adapter.start()
            file.grow(2_000)
            least = len(reader.numbers("active")) + draws.randrange(1, 1_500)
            reader.until(lambda least=least: len(reader.numbers("active")) >= least, "messages")  # type: ignore[misc]
            adapter.kill()
        file.grow(10)
        adapter.start()
        reader.until(lambda: file.count in reader.numbers("active"), "the last message")
        adapter.stop()
        reader.until(lambda: reader.state("a") == "gone", "the farewell")
    assert reader.numbers("active") == list(range(1, file.count + 1))
    stamps = [one.message_sequence for one in reader.slots["active"]]
    assert stamps == list(range(1, file.count + 1))
    assert {one.slot for one in reader.beats("a")} == {"active"}
    assert not reader.slots["backup"]


def test_an_adapter_whose_clock_was_set_back_is_heard(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S1, S2: its process before, by the clock of then, has started later."""
    file = GrowingFile(tmp_path / "lines.csv")
    adapter = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "a", "active", file.source)
    with ended(adapter):
        adapter.start()
        reader.until(lambda: reader.state("a") == "up", "the first process")
        adapter.stop()
        reader.until(lambda: reader.state("a") == "gone", "the farewell")
        ahead = reader.beats("a")[-1].boot + 3_600_000_000
        reader.say(RegistryKey("adapter", FEED, "a"), structs.replace(reader.beats("a")[-1], boot=ahead))
        reader.until(lambda: reader.beats("a")[-1].boot == ahead, "a process of the future")
        adapter.start()
        reader.until(lambda: reader.beats("a")[-1].boot > ahead and reader.state("a") == "up", "the next process")
        file.grow(1)
        reader.until(lambda: reader.numbers("active") == [1], "its message")
        adapter.stop()


def test_a_frozen_adapter_is_relieved_and_comes_back_as_standby(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S1, S2: SIGSTOP of the holder; the one that waits takes the slot, and keeps it when the first one wakes up."""
    file = GrowingFile(tmp_path / "lines.csv")
    first, second = (
        AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, name, "active", file.source) for name in "ab"
    )
    with ended(first, second):
        hold_and_wait(first, second, file, reader)
        first.signal(signal.SIGSTOP)
        file.grow(100)
        reader.until(lambda: reader.state("b") == "up" and 200 in reader.numbers("active"), "takeover")
        first.signal(signal.SIGCONT)
        reader.until(lambda: reader.state("a") == "waiting", "the first adapter waits")
        file.grow(100)
        reader.until(lambda: 300 in reader.numbers("active"), "messages after it")
        second.stop()
        reader.until(lambda: reader.state("a") == "up", "the first adapter again")
        file.grow(1)
        reader.until(lambda: 301 in reader.numbers("active"), "the last message")
        first.stop()
    assert set(reader.numbers("active")) == set(range(1, 302))


def test_no_pair_is_refused_and_one_takes_over(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S2: lines without numbers: one adapter alone. The next one goes on above all numbers of either slot."""
    (tmp_path / "lines").write_text("".join(f'{{"v":{number}}}\n' for number in range(50)))
    source = f'format="json"\nname="src"\nfrom="file:{tmp_path / "lines"}"\nfollow=true'
    first = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "a", "active", source)
    second = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "b", "backup", source)
    with ended(first, second):
        first.start()
        reader.until(lambda: reader.state("a") == "up" and len(reader.numbers("active")) == 50, "the first adapter")
        second.start()
        reader.until(lambda: reader.state("b") == "refused", "the refusal")
        assert "names no sequence number" in reader.beats("b")[-1].reason
        first.kill()
        reader.until(lambda: reader.state("b") == "up" and bool(reader.numbers("backup")), "takeover")
        second.stop()
    assert min(reader.numbers("backup")) == 51


class MoldServer(threading.Thread):
    """Sends a session to two adapters with losses, and answers requests."""

    def __init__(self, ports: list[int], count: int) -> None:
        super().__init__(daemon=True)
        self._ports, self.count = ports, count
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self._sock.settimeout(0.005)
        self.port: int = self._sock.getsockname()[1]
        self.requests, self.ending = 0, threading.Event()
        self._draws = draw.generator("losses of MoldUDP64")

    def run(self) -> None:
        number = 1
        while not self.ending.is_set():
            for _ in range(20):
                if number <= self.count:
                    self._send([b"%d" % number], number)
                    number += 1
            if number > self.count:
                self._send([], number)
            try:
                data, where = self._sock.recvfrom(100)
            except TimeoutError:
                continue
            request = parse_request(data)
            self.requests += 1
            found = [b"%d" % one for one in range(request.number, min(request.number + request.count, number))]
            self._sock.sendto(build_downstream("DAY1", request.number, found[:100]), where)
        self._sock.close()

    def _send(self, messages: list[bytes], number: int) -> None:
        for port in self._ports:
            if number == 1 or self._draws.random() > 0.05:
                self._sock.sendto(build_downstream("DAY1", number, messages), ("127.0.0.1", port))


def free_ports(count: int) -> list[int]:
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in socks:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in socks]
    for one in socks:
        one.close()
    return ports


def test_moldudp64_over_udp_with_its_request_server(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S2: 5 % loss on the way to each of two adapters: both slots have all, in order."""
    ports = free_ports(2)
    server = MoldServer(ports, 2_000)
    source = f'format="moldudp64"\nname="market"\nfrom="udp://127.0.0.1:{{}}"\nrequest="udp://127.0.0.1:{server.port}"'
    more = "[limits]\nrequest_within_ms=20000\nrequests_per_s=1000\nrequest_ms=200"
    one, other = (
        AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, name, slot, source.format(port), more)  # type: ignore[arg-type]
        for name, slot, port in (("a", "active", ports[0]), ("b", "backup", ports[1]))
    )
    with ended(one, other):
        one.start()
        other.start()
        reader.until(lambda: {reader.state("a"), reader.state("b")} == {"up"}, "both adapters")
        server.start()
        expected = list(range(1, server.count + 1))
        reader.until(lambda: min(len(reader.numbers("active")), len(reader.numbers("backup"))) >= len(expected), "all")
        server.ending.set()
        server.join()
        assert reader.numbers("active") == reader.numbers("backup") == expected
        assert server.requests
        one.stop()
        other.stop()


def test_administrative_messages_at_the_same_point(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """S4: two adapters of a growing file; the backup is killed between announcement and sending, and started again."""
    file = GrowingFile(tmp_path / "lines.csv")
    one = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "a", "active", file.source)
    other = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "b", "backup", file.source)

    def ask(name: str, lead: int | None) -> None:
        record = AdministrativeRequest(stream=STREAM, payload=name.encode(), lead=lead, by="test", at_us=0)
        reader.say(RegistryKey("request", FEED, name), record)

    def results() -> dict[str, AdministrativeResult]:
        return {key.name: record for key, record in reader.records if isinstance(record, AdministrativeResult)}

    def answers() -> int:
        return sum(key.kind == "answer" for key, _ in reader.records)

    with ended(one, other):
        one.start()
        other.start()
        file.grow(10)
        reader.until(lambda: reader.numbers("active") == reader.numbers("backup") == list(range(1, 11)), "both")
        ask("first", None)
        reader.until(lambda: answers() == 1, "the answer")
        file.grow(10)
        reader.until(lambda: "first" in results(), "the first result")
        ask("second", 20)
        reader.until(lambda: answers() == 2, "the answer")
        other.kill()
        other.start()
        file.grow(40)
        reader.until(lambda: len(reader.parts("backup")) == 2 and "second" in results(), "the second result")
        one.stop()
        other.stop()
    assert {result.outcome for result in results().values()} == {"both"}
    assert reader.parts("active") == reader.parts("backup")
    assert reader.parts("active")[1] == (40, 1, b"second")
    for slot in ("active", "backup"):
        places = [(one.sequence, getattr(one, "part", 0)) for one in reader.slots[slot]]  # type: ignore[index]
        assert places == sorted(places), "each after its message"


@draw.long_test
@pytest.mark.timeout(200)
def test_the_broker_stands_still_and_is_killed(own_broker: Broker, unique_prefix: str, tmp_path: Path) -> None:
    """S2: a file waits, and nothing of it is lost or doubled; what comes over UDP beyond the buffer is dropped, counted
    and shows as a gap, and what is behind it goes on."""
    reader = FeedReader(own_broker.bootstrap, make_topics(own_broker.bootstrap, unique_prefix))
    file = GrowingFile(tmp_path / "lines.csv", 200)
    (port,) = free_ports(1)
    more = "[limits]\nbuffer_messages=1000\nbatch_messages=100"
    datagrams = (
        f'format="csv"\nname="src"\nfrom="udp://127.0.0.1:{port}"\nmapping={{number="n"}}\ncsv={{columns=["n"]}}'
    )
    one = AdapterProcess(tmp_path, own_broker.bootstrap, unique_prefix, "a", "active", file.source, more)
    other = AdapterProcess(tmp_path, own_broker.bootstrap, unique_prefix, "b", "backup", datagrams, more)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            sent += 1
            sock.sendto(b"%d" % sent, ("127.0.0.1", port))
            time.sleep(0.0002)

    with ended(one, other), sock:
        one.start()
        file.grow(500)
        reader.until(lambda: len(reader.numbers("active")) == 500, "messages before")
        one.stop()
        other.start()
        reader.until(lambda: reader.state("b") == "up", "the adapter of datagrams")
        send(100)
        reader.until(lambda: len(reader.numbers("backup")) == 100, "datagrams before")
        own_broker.signal(signal.SIGSTOP)
        one.start()
        file.grow(20_000)
        send(5_000)
        time.sleep(10)  # the outage itself
        own_broker.signal(signal.SIGCONT)
        reader.until(lambda: len(reader.numbers("backup")) > 1_000, "what the buffer had")
        send(100)
        reader.until(lambda: sent in reader.numbers("backup"), "the last datagram")
        own_broker.kill()
        file.grow(1_000)
        own_broker.start()
        other.stop()
        reader.until(lambda: len(set(reader.numbers("active"))) == file.count, "all of the file")
        one.stop()
        numbers = reader.numbers("backup")
        assert numbers == sorted(set(numbers))
        assert len(numbers) < sent
        assert "the buffer is full" in other.log()
        assert list(dict.fromkeys(reader.numbers("active"))) == list(range(1, file.count + 1))
        assert all(isinstance(one, FeedMessage) for one in reader.slots["active"])
    reader.close()
