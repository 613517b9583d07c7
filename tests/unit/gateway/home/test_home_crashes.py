"""The gateway is killed at any moment, and again: nothing acknowledged is lost, nothing at QoS 2 doubled (Q1, G8, G9).

Hypothesis writes the schedule: who publishes, who comes and goes, what the broker holds back, when the home dies: with
records stored or not, before or after a commit of the spool, with its disk full, in the middle of every handshake.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.gateway.home.home_client import Client
from tests.unit.gateway.home.home_world import LEAD_S, PARTITIONS, World, turn
from tests.unit.gateway.home.virtual_time import run

SENDERS, RECEIVERS = 2, 3
SUBSCRIPTIONS = (("#",), ("a/+", "b/c"), ("a/x",))
TOPICS = ("a/x", "a/y", "b/c", "@r0", "@r2")
WANTED = ({"a/x", "a/y", "b/c", "@r0"}, {"a/x", "a/y", "b/c"}, {"a/x", "@r2"})
HELD = ("ingress", "sessions", "progress", "presence", "egress")

Step = tuple[str, int, int]

publishing = st.tuples(st.just("publish"), st.integers(0, SENDERS * len(TOPICS) - 1), st.integers(1, 2))
pausing = st.tuples(st.just("pause"), st.sampled_from([1, 4, 20, 90, 300, 6_000]), st.just(0))
coming = st.tuples(
    st.sampled_from(["lose", "connect", "mute", "hear"]), st.integers(0, SENDERS + RECEIVERS - 1), st.just(0)
)
holding = st.tuples(st.sampled_from(["hold acks", "hold stores"]), st.integers(0, len(HELD) - 1), st.just(0))
releasing = st.tuples(st.just("release"), st.just(0), st.just(0))
dying = st.tuples(
    st.sampled_from(["crash", "die before commit", "die after commit", "stop"]), st.integers(0, 3), st.just(0)
)
routing = st.tuples(st.sampled_from(["stale", "fresh", "slow", "quick"]), st.integers(0, 1), st.just(0))
filling = st.tuples(st.sampled_from(["disk full", "disk free"]), st.just(0), st.just(0))
step = st.one_of(
    publishing, publishing, publishing, pausing, pausing, coming, holding, releasing, dying, routing, filling
)


class Schedule:
    """Performs steps in a world with senders and receivers, and at the end sees to it that all can be delivered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.senders: list[Client] = []
        self.receivers: list[Client] = []
        self.sent: list[tuple[int, str, bytes, int]] = []

    async def begin(self, wait_s: float) -> None:
        for n in range(SENDERS):
            self.senders.append(await self.world.client(f"s{n}"))
        for n in range(RECEIVERS):
            self.receivers.append(await self.world.client(f"r{n}", receive_maximum=[65_535, 2, 4][n]))
            await self.receivers[n].subscribe(*SUBSCRIPTIONS[n])
        await turn(wait_s)

    async def perform(self, word: str, number: int, more: int) -> None:
        world = self.world
        clients = [*self.senders, *self.receivers]
        if not world.is_up:
            await self._restart()
        match word:
            case "publish":
                sender, topic = number % SENDERS, TOPICS[number // SENDERS]
                payload = b"%d" % len(self.sent)
                self.sent.append((sender, topic, payload, more))
                self.senders[sender].publish(topic, payload, more)
            case "pause":
                await turn(number / 1_000)
            case "lose":
                clients[number].lose()
            case "connect":
                await self._connect(clients[number])
            case "mute" | "hear":
                clients[number].mute = word == "mute"
                if word == "hear":
                    clients[number].answer_all()
            case "hold acks":
                world.bus.held_acks.add(HELD[number])
            case "hold stores":
                world.bus.held_stores.add(HELD[number])
            case "release":
                self._release()
            case "crash":
                world.crash(number)
            case "die before commit" | "die after commit":
                world.spool.dies = word.split()[1]
            case "stop":
                self._release()
                await world.stop()
            case "disk full":
                world.spool.fill_disk()
            case "disk free":
                world.spool.free_disk()
            case "stale" | "fresh":
                [world.active, world.backup][number].stale = word == "stale"
            case "slow" | "quick":
                [world.active, world.backup][number].delay_s = 7.0 if word == "slow" else 0.002

    async def end(self) -> None:
        world = self.world
        if world.is_up:
            world.spool.dies = None
            world.spool.free_disk()
        else:
            await self._restart()
        self._release()
        for client in (*self.senders, *self.receivers):
            client.mute = False
            client.answer_all()
            await self._connect(client)
        await turn(60)

    async def _restart(self) -> None:
        await self.world.start()
        for client in self.senders:
            await self._connect(client)

    async def _connect(self, client: Client) -> None:
        self._release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.connect(), 1)

    def _release(self) -> None:
        self.world.bus.held_acks.clear()
        self.world.bus.held_stores.clear()
        self.world.bus.release()

    def check(self) -> None:
        world = self.world
        assert not world.fatal
        assert all(client.present for client in (*self.senders, *self.receivers))
        for n, receiver in enumerate(self.receivers):
            got = receiver.payloads
            for sender, topic, payload, qos in self.sent:
                if topic not in WANTED[n]:
                    assert payload not in got
                    continue
                assert payload in self.senders[sender].acknowledged
                assert payload in got, f"{receiver.name} lost {payload!r} of {topic} at QoS {qos}"
                if qos == 2:
                    assert got.count(payload) == 1, f"{receiver.name} got {payload!r} {got.count(payload)} times"
            self._check_order(n, got)
        assert world.relinquished() == world.instructions()
        assert world.completed() == set(world.published())
        for client in (*self.senders, *self.receivers):
            session = client.attached.session
            assert session.queued == 0
            assert not any((session.restored, session.in_flight, session.received, session.publishing))
            assert session.replayed is None
            assert not session.put_back

    def _check_order(self, n: int, got: list[bytes]) -> None:
        """R8: first deliveries are in the order of `ingress`, a sender's."""
        partitions = [self.world.broker.partitions[self.world.topics.ingress, p] for p in range(PARTITIONS)]
        stored = {r.value(): r.offset() for records in partitions for r in reversed(records)}
        firsts = list(dict.fromkeys(got))
        for sender in range(SENDERS):
            mine = {payload for s, _topic, payload, _qos in self.sent if s == sender}
            offsets = [stored[payload] for payload in firsts if payload in mine]
            assert offsets == sorted(offsets)


async def play(steps: list[Step], wait_s: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        schedule = Schedule(await World(Path(directory)).start())
        await schedule.begin(wait_s)
        for word, number, more in steps:
            await schedule.perform(word, number, more)
        await schedule.end()
        schedule.check()
        schedule.world.crash()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=10, max_size=80))
def test_nothing_is_lost_or_doubled_by_route(steps: list[Step]) -> None:
    """Q1, G8, G9, R4, R8: all routes are in effect."""
    run(play(steps, LEAD_S + 5))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=10, max_size=80))
def test_nothing_is_lost_or_doubled_before_routes_take_effect(steps: list[Step]) -> None:
    """Q1, G8, G9, R4: own copies, and routes that take effect while the home dies."""
    run(play(steps, 15.0))


@pytest.mark.parametrize("word", ["crash", "stop"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5])
@pytest.mark.parametrize("ms", [0, 1, 2, 3, 5, 8, 100, 240, 251, 5_100, 5_251, 5_500])
def test_a_crash_at_each_stage_of_an_exchange(word: str, qos: int, wait_s: float, ms: int) -> None:
    """Q1, G8: `ms` after publishing, with a receiver that answers late; and once more right after."""
    steps: list[Step] = [
        ("publish", 0, qos),
        ("mute", 2 + 0, 0),
        ("publish", 0, qos),
        ("mute", 2 + 2, 0),
        ("publish", 2, qos),
        ("pause", ms, 0),
        (word, ms % 4, 0),
        ("connect", 2 + 0, 0),
        ("pause", ms, 0),
        (word, 0, 0),
        ("connect", 2 + 2, 0),
        ("pause", ms, 0),
    ]
    run(play(steps, wait_s))


flood = st.tuples(st.just("flood"), st.sampled_from([5, 60]), st.just(0))
windows = st.one_of(
    flood,
    flood,
    st.tuples(st.sampled_from(["lose", "connect", "mute", "hear"]), st.integers(SENDERS, SENDERS + 2), st.just(0)),
    st.tuples(st.just("pause"), st.sampled_from([0, 1, 2, 3, 4, 5, 7, 11, 5_100, 9_000]), st.just(0)),
    st.tuples(st.just("hold acks"), st.just(1), st.just(0)),
    releasing,
    dying,
    filling,
)


@pytest.mark.parametrize("wait_s", [15.0, LEAD_S + 5], ids=["own copies", "by route"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(windows, min_size=5, max_size=40))
def test_nothing_at_qos_2_is_lost_or_doubled_with_many_in_flight(wait_s: float, steps: list[Step]) -> None:
    """G8, G9: killed at any point of many exchanges at once, taken up by clients that come and go."""
    expanded: list[Step] = []
    for word, number, more in steps:
        if word == "flood":
            expanded += [("publish", n % (SENDERS * len(TOPICS)), 2 if n % 7 else 1) for n in range(number)]
        else:
            expanded.append((word, number, more))
    run(play(expanded, wait_s))


def test_the_window_record_does_not_grow_with_the_rate(tmp_path: Path) -> None:
    """G8: a record of the session log stays far below the broker's limit, whatever goes through between checkpoints."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        receiver = await world.client("receiver", receive_maximum=50)
        await receiver.subscribe("a/#")
        for _ in range(60):
            for n in range(100):
                sender.publish("a/b", b"%d" % n, 2)
            await turn(0.05)
        await turn(1)
        assert len(receiver.payloads) == 6_000
        records = [r for p in (0, 1) for r in world.broker.partitions[world.topics.sessions, p]]
        windows = [r for r in records if r.key() == b"receiver\0w"]
        assert len(windows) > 1_000 / 50
        assert max(len(r.value() or b"") for r in windows) < 10_000

    run(scenario())
