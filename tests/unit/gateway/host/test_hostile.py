"""What a client could make the gateway end or grow with, and what stops it (G11, R12)."""

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError

from gateway.host import close_reasons
from gateway.host.close_reasons import CLOSE_REASONS, ORDINARY, CloseLog
from gateway.shard.progress import portions
from gateway.shard.retained import RetainedMessages
from gateway.shard.session_records import opened_record, subscribed_record
from gateway.shard.trie import SubscriptionTrie
from jobs.stack.broker import EVENT_BYTES
from mqtt.codes import ReasonCode
from mqtt.packets import Connack, Puback, Publish, Suback, Subscribe, Subscription, Will
from mqtt.server_events import Closed
from schemas.envelope import Meta, ingress_headers
from schemas.events import RecipientOutcome
from schemas.identity import new_message_id
from schemas.session_log import encode
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize(
    ("client", "will", "reason"),
    [
        ("i" * 1_025, None, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ("é" * 513, None, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        ("i" * 1_024, None, ReasonCode.SUCCESS),
        ("w", Will("t", b"x", properties={"user_property": [("k" * 60_000, "v" * 60_000)] * 2}), ReasonCode(0x97)),
        ("w", Will("t" * 60_000, bytes(65_535)), ReasonCode.SUCCESS),
    ],
)
def test_what_does_not_fit_the_session_log_is_refused(
    tmp_path: Path, client: str, will: Will | None, reason: ReasonCode
) -> None:
    """A record that Kafka refuses would end the gateway; what is let in has room in one."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect(client, will=will))
        await turn()
        answer = wire.received[0]
        assert isinstance(answer, Connack)
        assert answer.reason_code is reason
        session = harness.home.session(client)
        assert (session is not None) == (reason is ReasonCode.SUCCESS)
        if session is not None:
            assert len(encode(opened_record(session))) < EVENT_BYTES
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("filling", ["a" * 9_000, "\x01" * 9_000, "é" * 4_500])
def test_all_subscriptions_fit_the_session_log(tmp_path: Path, filling: str) -> None:
    """Whatever filters a client chooses: beyond the limit of their bytes 0x97, and room again behind UNSUBSCRIBE."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c"))
        await turn()
        wire.send(Subscribe(1, [Subscription(f"{number}{filling}", 1) for number in range(100)]))
        await turn()
        (answer,) = (packet for packet in wire.received if isinstance(packet, Suback))
        granted = answer.reason_codes.count(ReasonCode.GRANTED_QOS_1)
        assert set(answer.reason_codes) == {ReasonCode.GRANTED_QOS_1, ReasonCode.QUOTA_EXCEEDED}
        session = harness.home.session("c")
        assert session is not None
        assert len(session.subscriptions) == granted
        limit = server.limits.subscription_bytes
        assert limit - 9_000 * 6 - 300 < len(encode(subscribed_record(session))) < limit
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_levels_of_a_filter(tmp_path: Path) -> None:
    """Refused by itself with 0x8F; topic names may have more."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c"))
        await turn()
        most = server.limits.filter_levels
        wanted = ["/".join("+" * most), "/".join("+" * (most + 1)), "a/#"]
        wire.send(Subscribe(1, [Subscription(topic_filter, 1) for topic_filter in wanted]))
        await turn()
        wire.send(Publish("a/" + "/" * 20_000, b"x", 0))
        await turn()
        codes = [ReasonCode.GRANTED_QOS_1, ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.GRANTED_QOS_1]
        assert wire.received[1] == Suback(1, codes)
        assert isinstance(wire.received[2], Publish)
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_sessions_are_limited(tmp_path: Path) -> None:
    """A client that has one comes in."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, sessions=2)
        for client in ("one", "two", "three", "", "one"):
            wire = Wire(server).send(connect(client))
            await turn()
            answer = wire.received[0]
            assert isinstance(answer, Connack)
            fits = client in ("one", "two")
            assert answer.reason_code is (ReasonCode.SUCCESS if fits else ReasonCode.QUOTA_EXCEEDED), client
            wire.lose()
        assert harness.home.session("three") is None
        await server.stop()

    run(scenario())


def test_retained_bytes_are_limited(tmp_path: Path) -> None:
    """0x97; less in the place of more is always taken, and what ends makes room."""

    async def scenario() -> None:
        _harness, server = await hosted(tmp_path, retained_bytes=10_000)
        wire = Wire(server).send(connect("c"))
        await turn()
        steps = [
            ("a", 6_000, 0),
            ("b", 6_000, 0x97),
            ("a", 9_000, 0),
            ("a", 100, 0),
            ("b", 6_000, 0),
            ("a", 6_000, 0x97),
        ]
        steps += [("b", 0, 0), ("a", 6_000, 0)]
        for topic, size, code in steps:
            wire.received.clear()
            wire.send(Publish(topic, bytes(size), 1, True, packet_id=1))
            await turn()
            (answer,) = wire.received
            assert isinstance(answer, Puback)
            assert answer.reason_code == code, (topic, size)
        await server.stop()

    run(scenario())


def test_retained_messages_on_their_way_count(tmp_path: Path) -> None:
    """A client does not wait for its answers to pass the limit; what Kafka refuses counts no more."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, retained_bytes=10_000, retained_messages=3)
        wire = Wire(server).send(connect("c"))
        await turn()
        retained = harness.node.retained
        for refused in (True, False):
            harness.bus.held_acks = {harness.topics.retained}
            harness.bus.refused = {harness.topics.retained: KafkaError(KafkaError.INVALID_MSG)} if refused else {}
            wire.received.clear()
            wire.send(*(Publish(f"{number}", bytes(3_000), 1, True, packet_id=number) for number in range(1, 6)))
            await turn()
            assert [p.packet_id for p in wire.received if isinstance(p, Puback)] == []
            harness.bus.held_acks = set()
            harness.bus.release()
            await turn()
            codes = [p.reason_code for p in wire.received if isinstance(p, Puback)]
            first = ReasonCode.UNSPECIFIED_ERROR if refused else ReasonCode.SUCCESS
            assert codes == [first] * 3 + [ReasonCode.QUOTA_EXCEEDED] * 2
            assert len(retained) == (0 if refused else 3)
        assert retained.has_capacity("1", 3_900)
        assert not retained.has_capacity("4", 1)
        await server.stop()

    run(scenario())


class _Stored:
    """A record of the topic `retained`."""

    def __init__(self, topic: str, offset: int) -> None:
        meta = Meta(0, "r", None, 0, None)
        self._topic, self._offset = topic, offset
        self._headers = ingress_headers(new_message_id(), "c", meta, b"\0")

    def key(self) -> bytes:
        return self._topic.encode()

    def value(self) -> bytes:
        return b"x"

    def headers(self) -> object:
        return self._headers

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 2, 0


def test_retained_messages_are_looked_through_in_turns() -> None:
    """One pass for all filters of a SUBSCRIBE, and others have their turns meanwhile."""

    async def scenario() -> None:
        retained = RetainedMessages(10_000, 1 << 30, 1)
        for number in range(3_000):
            retained.fold(_Stored(f"k/{number % 10}/{number}", number))  # type: ignore[arg-type]
        turns = 0
        filters = ["k/0/30", "k/1/+", "k/+/31", "no/#", "nobody"]

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(others())
        found = [(topic_filter, message.topic) async for topic_filter, message in retained.matching(filters)]
        other.cancel()
        assert turns >= 5
        expected = {("k/0/30", "k/0/30"), ("k/+/31", "k/1/31")} | {("k/1/+", f"k/1/{n}") for n in range(1, 3_000, 10)}
        assert len(found) == len(set(found))
        assert set(found) == expected

    run(scenario())


def test_remembered_matches_are_bounded() -> None:
    """By what they weigh, not by their number: long topics and long lists are remembered for fewer."""
    trie = SubscriptionTrie[int]()
    for number in range(1_000):
        trie.add("a/#", str(number), number)
    for number in range(2_000):
        assert len(trie.match(f"a/{number}")) == 1_000
        assert len(trie.match("a/" + "x" * 60_000 + str(number))) == 1_000
    assert sum(len(topic) // 8 + len(found) for topic, found in trie._cache.items()) <= 500_000


def test_outcomes_of_many_recipients_fit_kafka() -> None:
    """None is lost, none doubled, and no event is larger than the broker takes."""
    few = [RecipientOutcome(client="c", outcome="dropped", qos=1, at_us=0)]
    assert portions([]) == [[]]
    assert portions(few) == [few]
    for size, number in ((16, 30_000), (1_024, 2_000), (16_384, 30)):
        many = [
            RecipientOutcome(client="\x01" * size, outcome="delivered", qos=1, at_us=1 << 50) for _ in range(number)
        ]
        found = portions(many)
        assert [delivery for portion in found for delivery in portion] == many
        assert len(found) > 1
        assert all(len(msgspec.json.encode(portion)) < EVENT_BYTES for portion in found)


def test_every_reason_for_an_end_is_listed() -> None:
    """R12: metrics, presence and the log have no other words, and the operators' page explains each."""
    for reason in ReasonCode:
        for clean in (False, True):
            closed = Closed(reason, "", False, clean)
            for lost, connecting, has in itertools.product((False, True), repeat=3):
                word = close_reasons.close_reason(closed, is_lost=lost, is_connecting=connecting, has_connect=has)
                assert word in CLOSE_REASONS
    page = (DOCS / "operators.md").read_text()
    assert not {word for word in CLOSE_REASONS if f"`{word}`" not in page}
    assert ORDINARY <= CLOSE_REASONS


def test_ends_are_logged_with_restraint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each that is not ordinary, few a second, without what was sent."""
    lines: list[tuple[str, dict[str, object]]] = []

    class Log:
        def info(self, event: str, **fields: object) -> None:
            lines.append((event, fields))

    monkeypatch.setattr(close_reasons, "log", Log())
    now = 5.0
    close_log = CloseLog(lambda: now)
    closed = Closed(ReasonCode.PROTOCOL_ERROR, "a second CONNECT", False, False)
    close_log.ended("connection_lost", closed, client="c", peer="p")
    assert lines == []
    for _ in range(50):
        close_log.ended("protocol_error", closed, client="i" * 1_000, peer="p")
    assert len(lines) == close_reasons.LINES_PER_S
    event, fields = lines[0]
    assert event == "connection ended"
    assert fields == {"client": "i" * 64, "peer": "p", "reason": "protocol_error", "detail": "a second CONNECT"}
    now = 6.0
    close_log.ended("protocol_error", closed, client="c", peer="p")
    assert lines[close_reasons.LINES_PER_S] == ("more connections ended", {"count": 40})
