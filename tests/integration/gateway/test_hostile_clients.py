"""A gateway process on a real broker under clients that break it if they can (G11, R12).

Each of them is closed for a reason that the metrics name, or bounded; the process stays, its memory does not grow with
what it is sent, and a well-behaved client is served all the while.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.processes import Gateway
from jobs.stack.process import wait_until
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.gateway.hostile_client import PATIENCE_S, Heart, RawClient, Vitals

GROWTH_MB = 80
"""How much the process may grow under any one of them: some buffers, and what the allocator keeps."""

LIMITS = {
    "CONNECTIONS": "1500",
    "SESSIONS": "3000",
    "CONNECT_TIMEOUT_S": "1.5",
    "WRITE_BUFFER_BYTES": "65536",
    "QUEUE_MESSAGES": "500",
    "RETAINED_MESSAGES": "300",
    "RETAINED_BYTES": "2000000",
}


class TightGateway(Gateway):
    """A gateway whose limits are met soon."""

    def __init__(self, directory: Path, bootstrap: str, prefix: str) -> None:
        super().__init__(directory, bootstrap, prefix)
        self.environ["WAYSTATION_ROUTER__ROUTE_LEAD_S"] = "900"  # there is no router: subscriptions stay instant
        self.environ |= {f"WAYSTATION_GATEWAY__LIMITS__{name}": value for name, value in LIMITS.items()}

    def vitals(self) -> Vitals:
        return Vitals(self.pid, self.port_of("metrics"))


@pytest.fixture(scope="module")
def gateway(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TightGateway]:
    broker.topics("hostile.")
    started = TightGateway(tmp_path_factory.mktemp("hostile"), broker.bootstrap, "hostile.")
    started.start()
    yield started
    started.stop()


@pytest.fixture
def port(gateway: TightGateway) -> Iterator[int]:
    """The gateway's port; afterwards it lives, has not grown, and its well-behaved client was served meanwhile."""
    vitals = gateway.vitals()
    before = vitals.memory_mb
    with Heart(gateway.port):
        yield gateway.port
    assert not gateway.process.ended()
    grown = vitals.memory_mb - before
    assert grown < GROWTH_MB, f"the gateway grew by {grown:.0f} MB"


@pytest.fixture
def ended(gateway: TightGateway) -> Callable[[str, int], None]:
    """Waits until so many connections more have ended for a reason than when the test began."""
    vitals = gateway.vitals()
    before: dict[str, int] = {}
    for reason in ReasonCode:
        before[reason.name.lower()] = vitals.count("connections_closed", reason.name.lower())

    def check(reason: str, times: int = 1) -> None:
        wanted = before.get(reason, 0) + times
        assert wait_until(lambda: vitals.count("connections_closed", reason) >= wanted, PATIENCE_S), reason

    return check


Ended = Callable[..., None]


@pytest.mark.parametrize("version", [4, 5])
def test_one_byte_at_a_time(port: int, version: int) -> None:
    with RawClient(port, version) as client:
        data = encode(Connect("slow", version), version) + encode(Publish("slow/a", b"x", 1, packet_id=5), version)
        for at in range(len(data)):
            client.write(data[at : at + 1])
        assert isinstance(client.receive(), Connack)
        assert client.receive() == Puback(5)


def test_no_connect_or_half_of_it(port: int, ended: Ended) -> None:
    with RawClient(port) as silent, RawClient(port) as slow:
        slow.write(encode(Connect("c" * 100, 5), 5)[:50])
        assert silent.receive() is None
        assert slow.receive() is None
    ended("connect_timeout", 2)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_vanishes(port: int, ended: Ended, version: int) -> None:
    """[MQTT-3.1.2-22]: nothing comes any more, not even the end of the connection."""
    with RawClient(port, version).connect("vanished", keep_alive=1) as client:
        assert client.last() == (Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT, _why()) if version == 5 else None)
    ended("keep_alive_timeout")


def _why() -> dict[str, str]:
    return {"reason_string": "no packet within 1.5 x 1 s"}


def test_a_subscriber_that_never_acknowledges(gateway: TightGateway, port: int) -> None:
    """Its window fills, then its queue; what is more is dropped for it alone, and counted."""
    vitals = gateway.vitals()
    dropped = vitals.count("deliveries_dropped", "queue_full")
    with RawClient(port).connect("mute", receive_maximum=10) as mute, RawClient(port).connect("sender") as sender:
        mute.subscribe("mute/#")
        for number in range(1_000):
            sender.send(Publish("mute/a", bytes(1_000), 1, packet_id=1))
            assert sender.receive() == Puback(1), number
        assert wait_until(lambda: vitals.count("deliveries_dropped", "queue_full") >= dropped + 490, PATIENCE_S)
        mute.send(Pingreq())
        got = [mute.receive() for _ in range(11)]
        assert [type(packet) for packet in got] == [Publish] * 10 + [Pingresp]


def test_a_client_that_never_reads_what_it_asks_for(gateway: TightGateway, port: int, ended: Ended) -> None:
    """Answers have no queue: with more of them than the write buffer takes it ends, and its socket with it."""
    vitals = gateway.vitals()
    files = vitals.open_files
    pings = b"\xc0\0" * 32_768
    with RawClient(port, receive_buffer=4_096).connect("deaf") as client:
        sent = 0
        while taken := client.write_what_goes(pings[sent % 2 :], 5.0):  # what comes behind the end is thrown away
            sent += taken
        ended("quota_exceeded")
        assert wait_until(lambda: vitals.open_files <= files, PATIENCE_S), "the connection is still open"


def test_a_subscriber_that_never_reads(port: int) -> None:
    """What it does not take waits in a bounded queue, and is dropped beyond it."""
    with RawClient(port, receive_buffer=4_096).connect("idle") as idle, RawClient(port).connect("sender") as sender:
        idle.subscribe("idle/#", qos=0)
        for _ in range(300):
            sender.send(Publish("idle/a", bytes(100_000), 1, packet_id=1))
            assert sender.receive() == Puback(1)


def test_much_behind_connect(port: int, ended: Ended) -> None:
    behind = encode(Publish("a", bytes(1_000)), 5) * 80
    with RawClient(port) as client:
        client.write(encode(Connect("eager", 5), 5) + behind)
        answer = client.receive()
        assert isinstance(answer, Connack)
        if answer.reason_code:  # else CONNECT was answered before all of it had come
            assert answer.reason_code is ReasonCode.QUOTA_EXCEEDED
            ended("quota_exceeded")


def test_a_thousand_connections_at_once(port: int) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in range(1_000)]
        for number, client in enumerate(clients):
            client.send(Connect(f"many-{number}", 5))
        for client in clients:
            answer = client.receive()
            assert isinstance(answer, Connack)
            assert not answer.reason_code
        for client in clients:
            client.send(Pingreq())
        assert {type(client.receive()) for client in clients} == {Pingresp}


def test_more_connections_than_allowed(port: int, ended: Ended) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in range(1_600)]
        for number, client in enumerate(clients):
            client.send(Connect(f"more-{number}", 5))
        refused = [client for client in clients if client.receive().reason_code]  # type: ignore[union-attr]
        assert len(refused) >= 100
        ended("quota_exceeded", len(refused))


def test_a_client_that_takes_itself_over(port: int, ended: Ended) -> None:
    """Two hundred times, as fast as it goes: the last one stays."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(port)) for _ in range(200)]
        connect = Connect("storm", 5, False, properties={"session_expiry_interval": 60})
        threads = [threading.Thread(target=client.send, args=(connect,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended("session_taken_over", 199)
        last = RawClient(port).connect("storm", clean=False)
        stack.enter_context(last)
        assert isinstance(last.send(Pingreq()).receive(), Pingresp)


def test_opening_and_closing(gateway: TightGateway, port: int) -> None:
    """5,000 times, half of them with a CONNECT: nothing of it stays."""
    vitals = gateway.vitals()
    files = vitals.open_files
    for number in range(5_000):
        client = RawClient(port)
        if number % 2:
            client.send(Connect(f"brief-{number}", 5))
        client.close()
    assert wait_until(lambda: vitals.open_files <= files + 2, PATIENCE_S)


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
        (b"\x30\xff\xff\xff\xff", ReasonCode.MALFORMED_PACKET),
        (b"\x00\x00", ReasonCode.MALFORMED_PACKET),
        (encode(Connect("again", 4), 4), ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_bytes_that_no_client_sends(port: int, ended: Ended, hostile: bytes, reason: ReasonCode) -> None:
    with RawClient(port).connect("breaker") as client:
        told = client.write(hostile).last()
        assert isinstance(told, Disconnect)
        assert told.reason_code is reason
    ended(reason.name.lower())


def test_giant_length_before_connect(port: int, ended: Ended) -> None:
    """Its protocol version says how to answer; whoever does not get as far as that is waited for as for any CONNECT."""
    giant = b"\x10\xff\xff\xff\x7f"
    with RawClient(port) as client:
        refusal = client.write(giant + b"\x00\x04MQTT\x05\x02\x00\x3c").receive()
        assert isinstance(refusal, Connack)
        assert refusal.reason_code is ReasonCode.PACKET_TOO_LARGE
        assert client.receive() is None
    ended("packet_too_large")
    with RawClient(port) as client:
        assert client.write(giant).receive() is None
    ended("connect_timeout")


def test_subscription_bombs(port: int) -> None:
    """Many, deep, and long filters: granted up to the limits, each refusal with its code; what is left costs little."""
    deep = "+/" * 32_767 + "+"
    with RawClient(port).connect("bomber", clean=False, session_expiry_interval=60) as client:
        thousand = client.subscribe(*(f"bomb/{number}/+/#" for number in range(1_000)))
        assert set(thousand.reason_codes) == {ReasonCode.GRANTED_QOS_1}
        assert client.subscribe("one/more").reason_codes == [ReasonCode.QUOTA_EXCEEDED]
    with RawClient(port).connect("deep") as client:
        assert client.subscribe(deep).reason_codes == [ReasonCode.TOPIC_FILTER_INVALID]
        binary = [f"{number:020b}".replace("0", "a/").replace("1", "+/") + "#" for number in range(900)]
        assert set(client.subscribe(*binary).reason_codes) == {ReasonCode.GRANTED_QOS_1}
        for number in range(50):
            client.send(Publish("a/" * 20 + str(number), b"x", 0))
        assert isinstance(client.send(Pingreq()).receive(), Publish | Pingresp)
    with RawClient(port).connect("long", clean=False, session_expiry_interval=60) as client:
        codes = client.subscribe(*(f"{number:02}" + "\x01" * 20_000 for number in range(40))).reason_codes
        assert codes[0] is ReasonCode.GRANTED_QOS_1
        assert codes[-1] is ReasonCode.QUOTA_EXCEEDED, "all subscriptions of a session are one record on Kafka"
    with RawClient(port).connect("bomber", clean=False) as again:
        assert isinstance(again.send(Pingreq()).receive(), Pingresp), "the gateway still has its session log"


def test_topic_of_many_levels(port: int) -> None:
    topic = "deep/" + "/" * 30_000
    with RawClient(port).connect("deep-topic") as client:
        client.subscribe("deep/#")
        client.send(Publish(topic, b"x", 1, packet_id=3))
        got = [client.receive(), client.receive()]
        assert sorted(type(packet).__name__ for packet in got) == ["Puback", "Publish"]


def test_user_property_bombs(port: int, ended: Ended) -> None:
    """A packet has 4,096 at most."""
    pairs = [("", "")] * 150_000
    with RawClient(port).connect("proper") as client:
        client.send(Publish("proper/a", b"x", 1, packet_id=4, properties={"user_property": pairs[:4096]}))
        answer = client.receive()
        assert isinstance(answer, Puback)
        client.send(Publish("proper/a", b"x", 1, packet_id=5, properties={"user_property": pairs}))
        told = client.receive()
        assert isinstance(told, Disconnect)
        assert told.reason_code is ReasonCode.QUOTA_EXCEEDED
    will = Will("w", b"gone", properties={"user_property": pairs})
    bomb = encode(Connect("will-bomb", 5, False, will=will, properties={"session_expiry_interval": 60}), 5)
    with RawClient(port) as client:  # only now: encoding it may take longer than a connection may wait with CONNECT
        client.write(bomb)
        refusal = client.receive()
        assert isinstance(refusal, Connack)
        assert refusal.reason_code is ReasonCode.QUOTA_EXCEEDED
    ended("quota_exceeded", 2)


@pytest.mark.parametrize(("version", "code"), [(4, 2), (5, 0x85)])
def test_client_id_bomb(port: int, ended: Ended, version: int, code: int) -> None:
    """It would go with every message, event and record of the client."""
    with RawClient(port, version) as client:
        client.send(Connect("i" * 65_535, version))
        refusal = client.receive()
        assert isinstance(refusal, Connack)
        assert refusal.reason_code == code
    ended("client_identifier_not_valid")


def test_retained_bombs(port: int) -> None:
    """Refused beyond their number and their bytes; asking for them with a thousand filters keeps nobody waiting."""
    with RawClient(port).connect("keeper") as client:
        codes = []
        for number in range(400):
            client.send(Publish(f"kept/{number}/a", b"x", 1, True, packet_id=1))
            answer = client.receive()
            assert isinstance(answer, Puback)
            codes.append(answer.reason_code)
        assert codes.count(ReasonCode.QUOTA_EXCEEDED) >= 100
        large = Publish("kept/0/a", bytes(1_000_000), 1, True, packet_id=1)
        client.send(large)
        assert client.receive() == Puback(1)
        for number in range(1, 4):
            client.send(Publish(f"kept/{number}/a", bytes(1_000_000), 1, True, packet_id=1))
            answer = client.receive()
        assert isinstance(answer, Puback)
        assert answer.reason_code is ReasonCode.QUOTA_EXCEEDED
    with RawClient(port).connect("asker") as client:
        client.send(Subscribe(9, [Subscription(f"+/+/{chr(97 + n % 26)}/#", 0) for n in range(1_000)]))
        while not isinstance(client.receive(), Suback):
            pass
        assert isinstance(client.receive(), Publish)


@draw.long_test
def test_sessions_are_bounded(port: int, ended: Ended) -> None:
    refused = 0
    for number in range(3_200):
        client = RawClient(port)
        client.send(Connect(f"stay-{number}", 5, False, properties={"session_expiry_interval": 600}))
        answer = client.receive()
        assert isinstance(answer, Connack)
        refused += answer.reason_code is ReasonCode.QUOTA_EXCEEDED
        client.close()
    assert refused >= 200
    ended("quota_exceeded", refused)
