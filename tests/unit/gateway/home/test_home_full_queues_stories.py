"""Full queues by random stories: receivers that come, go and dawdle, any choice and size, crashes (G8, G9, R8).

What must hold when each of them has ended is :meth:`Story.check`; single cases are in `test_home_full_queues`.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.gateway.home.home_client import Client
from tests.unit.gateway.home.home_world import LEAD_S, PARTITIONS, World, turn
from tests.unit.gateway.home.virtual_time import run

Step = tuple[str, int, int]

TOPICS = ("x/1", "x/2", "@r0", "@r1")
WANTED = ({"x/1", "x/2", "@r0"}, {"x/1", "@r1"})

publishing = st.tuples(st.just("publish"), st.integers(0, 2 * len(TOPICS) - 1), st.integers(0, 2))
flooding = st.tuples(st.just("flood"), st.integers(0, 2 * len(TOPICS) - 1), st.sampled_from([3, 9, 40]))
pausing = st.tuples(st.just("pause"), st.sampled_from([1, 3, 10, 120, 300, 6_000]), st.just(0))
coming = st.tuples(st.sampled_from(["lose", "connect", "mute", "hear"]), st.integers(0, 1), st.just(0))
dying = st.tuples(st.sampled_from(["crash", "die before commit", "die after commit"]), st.integers(0, 3), st.just(0))
holding = st.tuples(st.sampled_from(["hold", "release"]), st.just(0), st.just(0))
step = st.one_of(publishing, publishing, flooding, flooding, pausing, pausing, coming, coming, dying, holding)


class Story:
    """Two senders, and two receivers with small queues."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.senders: list[Client] = []
        self.receivers: list[Client] = []
        self.sent: list[tuple[int, str, bytes, int]] = []
        self.fates: list[dict[str, int]] = [{}, {}]
        self.shown = [0, 0]

    async def begin(self) -> None:
        self.senders = [await self.world.client(f"s{n}") for n in range(2)]
        self.receivers = [await self.world.client(f"r{n}", receive_maximum=[65_535, 3][n]) for n in range(2)]
        await self.receivers[0].subscribe("x/#")
        await self.receivers[1].subscribe("x/1")
        await turn(LEAD_S + 5)

    async def perform(self, word: str, number: int, more: int) -> None:
        world = self.world
        if not world.is_up:
            await self._restart()
        match word:
            case "publish":
                self._publish(number, more)
            case "flood":
                for n in range(more):
                    self._publish(number, 1 + n % 2)
            case "pause":
                await turn(number / 1_000)
            case "lose":
                self.receivers[number].lose()
            case "connect":
                await self._connect(self.receivers[number])
            case "mute" | "hear":
                self.receivers[number].mute = word == "mute"
                if word == "hear":
                    self.receivers[number].answer_all()
            case "hold":
                world.bus.held_acks.add(world.topics.sessions)
            case "release":
                self._release()
            case "crash":
                world.crash(number)
            case "die before commit" | "die after commit":
                world.spool.dies = word.split()[1]
        self._look()

    def _publish(self, number: int, qos: int) -> None:
        sender, topic, payload = number % 2, TOPICS[number // 2], b"%d" % len(self.sent)
        self.sent.append((sender, topic, payload, qos))
        self.senders[sender].publish(topic, payload, qos)

    def _look(self) -> None:
        """What has come since the last look had not been reported as dropped by then; it may be now. A sender that did
        not hear of its PUBACK has made two messages of one: of those either may have been."""
        known, twice = self._payloads(), self._twice()
        for n, receiver in enumerate(self.receivers):
            for payload in receiver.payloads[self.shown[n] :]:
                again = payload in receiver.payloads[: self.shown[n]]
                if not again and payload not in twice:
                    assert payload not in self.fates[n], f"{receiver.name} got {payload!r}, which had been dropped"
            self.shown[n] = len(receiver.payloads)
            ids = [e.id for e in self.world.events() for d in e.deliveries
                   if (d.client, d.outcome) == (receiver.name, "dropped") and d.qos]  # fmt: skip
            self.fates[n] = {known[i]: ids.count(i) for i in ids}

    def _payloads(self) -> dict[str, bytes]:
        found = [self.world.broker.partitions[self.world.topics.ingress, p] for p in range(PARTITIONS)]
        return {(r.headers() or [])[0][1].decode(): r.value() or b"" for records in found for r in records}

    def _twice(self) -> set[bytes]:
        return {payload for payload, n in Counter(self._payloads().values()).items() if n > 1}

    async def end(self) -> None:
        self.world.spool.dies = None
        if not self.world.is_up:
            await self._restart()
        self._release()
        for client in (*self.senders, *self.receivers):
            client.mute = False
            client.answer_all()
            await self._connect(client)
        await turn(LEAD_S + 60)
        for receiver in self.receivers:  # who was too slow comes again, for what waits
            if receiver.link is None:
                await self._connect(receiver)
        await turn(30)
        self._look()

    async def _restart(self) -> None:
        await self.world.start()
        for client in self.senders:
            await self._connect(client)

    async def _connect(self, client: Client) -> None:
        self._release()
        await client.connect()

    def _release(self) -> None:
        self.world.bus.held_acks.clear()
        self.world.bus.release()

    def check(self) -> None:
        world = self.world
        assert not world.fatal
        offsets = {
            r.value(): r.offset()
            for p in range(PARTITIONS)
            for r in reversed(world.broker.partitions[world.topics.ingress, p])
        }
        for n, receiver in enumerate(self.receivers):
            got, dropped = receiver.payloads, self.fates[n]
            for sender, topic, payload, qos in self.sent:
                if topic in WANTED[n] and qos:
                    assert payload in self.senders[sender].acknowledged
                    assert payload in got or payload in dropped, f"{receiver.name} lost {payload!r} in silence"
                if qos == 2:
                    assert got.count(payload) + (payload in dropped) <= 1, f"{receiver.name}: {payload!r} twice"
            firsts = list(dict.fromkeys(got))
            for number in range(2):
                mine = {payload for sender, _topic, payload, _qos in self.sent if sender == number} - self._twice()
                order = [offsets[payload] for payload in firsts if payload in mine]
                assert order == sorted(order), f"{receiver.name} got {firsts}"
            session = receiver.attached.session
            assert (session.queued, session.queued_bytes, len(session.in_flight)) == (0, 0, 0)
            assert not any((session.dropping, session.dropped, session.dropped_before, session.put_back))
        assert world.relinquished() == world.instructions()
        assert world.spool_rows() == 0


async def play(steps: list[Step], **limits: int | str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = Story(await World(Path(directory), **limits).start())
        await story.begin()
        for word, number, more in steps:
            await story.perform(word, number, more)
        await story.end()
        story.check()
        story.world.crash()


@pytest.mark.parametrize("choice", ["drop_oldest", "drop_newest", "disconnect"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=10, max_size=70), most=st.sampled_from([1, 4, 20]))
def test_each_message_is_delivered_or_said_to_be_dropped(choice: str, steps: list[Step], most: int) -> None:
    """G8, G9, R8: in order; at QoS 2 never both, never twice; at no QoS after it was said to be dropped."""
    run(play(steps, queue_messages=most, queue_full=choice))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=10, max_size=70))
def test_the_same_of_a_queue_that_is_full_of_bytes(steps: list[Step]) -> None:
    """G8, G9, R8."""
    run(play(steps, queue_bytes=12, queue_full="drop_oldest"))
