"""R8 by random stories: senders and receivers, subscriptions of any age, routers that are late or away, crashes.

What must hold when each of them has ended is :meth:`Story.check`; single cases are in `test_home_order`.
"""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.topics import matches
from tests.unit.gateway.home.home_client import Client
from tests.unit.gateway.home.home_world import LEAD_S, PARTITIONS, World, turn
from tests.unit.gateway.home.virtual_time import run

TOPICS = ("x/1", "x/2", "y/1", "z/1", "@r0", "@r1")
FILTERS = ("x/1", "x/#", "y/+", "#", "z/1")

Step = tuple[str, int, int]

publishing = st.tuples(st.just("publish"), st.integers(0, 2 * len(TOPICS) - 1), st.integers(0, 2))
subscribing = st.tuples(
    st.sampled_from(["subscribe", "subscribe", "unsubscribe"]), st.integers(0, 1), st.integers(0, 4)
)
pausing = st.tuples(st.just("pause"), st.sampled_from([1, 5, 40, 500, 6_000, 20_000]), st.just(0))
routing = st.tuples(
    st.sampled_from(["slow", "slower", "quick", "stop", "go", "stale", "fresh"]), st.integers(0, 1), st.just(0)
)
dying = st.tuples(st.just("crash"), st.integers(0, 3), st.just(0))
coming = st.tuples(st.sampled_from(["lose", "connect"]), st.integers(0, 1), st.just(0))
step = st.one_of(publishing, publishing, publishing, publishing, subscribing, pausing, routing)


class Story:
    """What is done to two senders, two receivers and two routers, and what must have come at the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.senders: list[Client] = []
        self.receivers: list[Client] = []
        self.sent: list[tuple[int, str, bytes, int]] = []
        self.granted: list[set[str]] = [set(), set()]
        self.due: list[dict[bytes, set[str]]] = [{}, {}]  # payload: the filters that wanted it when it was published

    async def begin(self) -> None:
        self.senders = [await self.world.client(f"s{n}") for n in range(2)]
        self.receivers = [await self.world.client(f"r{n}", receive_maximum=[65_535, 3][n]) for n in range(2)]
        for n, old in enumerate(("x/1", "y/+")):
            await self.receivers[n].subscribe(old)
            self.granted[n].add(old)
        await turn(LEAD_S + 5)

    async def perform(self, word: str, number: int, more: int) -> None:
        world = self.world
        match word:
            case "publish":
                self._publish(number % 2, TOPICS[number // 2], more)
            case "subscribe":
                if self.receivers[number].link is not None:
                    await self.receivers[number].subscribe(FILTERS[more])
                    self.granted[number].add(FILTERS[more])
            case "unsubscribe":
                if self.receivers[number].link is not None:
                    await self.receivers[number].unsubscribe(FILTERS[more])
                    self.granted[number].discard(FILTERS[more])
                    for wanted_by in self.due[number].values():  # what was on its way for this one alone need not come
                        wanted_by.discard(FILTERS[more])
            case "pause":
                await turn(number / 1_000)
            case "slow" | "slower" | "quick":
                delays = {"slow": 0.7, "slower": 9.0, "quick": 0.002}
                [world.active, world.backup][number].delay_s = delays[word]
            case "stale" | "fresh":
                [world.active, world.backup][number].stale = word == "stale"
            case "stop" | "go":
                self._route(number, stopped=word == "stop")
            case "crash":
                world.crash(number)
                await world.start()
                for client in (*self.senders, *self.receivers):
                    await client.connect()
            case "lose":
                self.receivers[number].lose()
            case "connect":
                await self.receivers[number].connect()

    def _publish(self, sender: int, topic: str, qos: int) -> None:
        payload = b"%d" % len(self.sent)
        self.sent.append((sender, topic, payload, qos))
        for n in range(2):
            if qos:
                filters = {f"@r{n}"} if topic.startswith("@") else self.granted[n]
                self.due[n][payload] = {f for f in filters if matches(f, topic)}
        self.senders[sender].publish(topic, payload, qos)

    def _route(self, number: int, *, stopped: bool) -> None:
        router = [self.world.active, self.world.backup][number]
        router.stopped = stopped
        router.wake()

    async def end(self) -> None:
        for number in range(2):
            self._route(number, stopped=False)
        for receiver in self.receivers:
            if receiver.link is None:
                await receiver.connect()
        await turn(LEAD_S + 60)

    def check(self) -> None:
        world = self.world
        assert not world.fatal
        places = [world.broker.partitions[world.topics.ingress, p] for p in range(PARTITIONS)]
        offsets = {record.value(): record.offset() for records in places for record in reversed(records)}
        for n, receiver in enumerate(self.receivers):
            got = receiver.payloads
            due = {payload for payload, wanted_by in self.due[n].items() if wanted_by}
            assert due <= set(got), f"{receiver.name} lost {due - set(got)}"
            for sender, _topic, payload, qos in self.sent:
                if qos == 2:
                    assert got.count(payload) <= 1, f"{receiver.name} got {payload!r} {got.count(payload)} times"
                assert payload in self.senders[sender].acknowledged or not qos
            firsts = list(dict.fromkeys(got))
            for number in range(2):
                mine = {payload for sender, _topic, payload, _qos in self.sent if sender == number}
                order = [offsets[payload] for payload in firsts if payload in mine]
                assert order == sorted(order), f"{receiver.name} got {firsts}"
        assert world.relinquished() == world.instructions()
        assert not any(shard.parked for shard in world.context.shards)
        assert world.home._instant.positions is None, "the reader has ended"


async def play(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = Story(await World(Path(directory), held_back_messages=8).start())
        await story.begin()
        for word, number, more in steps:
            await story.perform(word, number, more)
        await story.end()
        story.check()
        story.world.crash()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=10, max_size=90))
def test_order_is_kept_whoever_subscribes_and_however_late_routers_are(steps: list[Step]) -> None:
    """R8, M14: nothing lost, doubled or overtaken, across subscriptions of any age and the inbox."""
    run(play(steps))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.one_of(step, step, step, dying, coming), min_size=10, max_size=90))
def test_order_is_kept_across_crashes(steps: list[Step]) -> None:
    """R8, G8, Q1: the home is killed at any moment."""
    run(play(steps))
