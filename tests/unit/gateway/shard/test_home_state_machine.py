"""Whatever clients, routers, Kafka and the disk do, and whenever the home is killed: nothing acknowledged is lost,
nothing at QoS 2 comes twice, order holds, and all is completed and cleared away (Q1, R4, R6, R8, G8, G9, M14).

One state machine, in each of the setups below with the rules that it is about. What must hold is in
:meth:`~tests.unit.gateway.shard.home_model.HomeModel.check`; single cases are in the other tests of the home.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests import draw
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.home_model import HELD, KILLED, SENDERS, HomeModel, Setup
from tests.unit.gateway.shard.virtual_time import VirtualLoop

FILTERS = ("x/1", "x/#", "y/+", "#", "z/1")
DELAYS_S = {"quick": 0.002, "slow": 0.7, "slower": 7.0, "slowest": 9.0}
STEPS = 60
EXAMPLES = draw.times(4, 150)

numbers = st.integers(0, 5)
either = st.integers(0, 1)
short_ms = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 11, 20, 40, 90])
long_ms = st.sampled_from([120, 300, 500, 5_100, 6_000, 9_000, 20_000])


def only(*kinds: str) -> Callable[[Any], Any]:
    """The rule is of setups that have one of these kinds of events."""
    return precondition(lambda machine: not machine.events.isdisjoint(kinds))


class HomeMachine(RuleBasedStateMachine):
    """`setups` are one per kind of example, `events` the kinds of events that happen."""

    setups: ClassVar[tuple[Setup, ...]]
    events: ClassVar[frozenset[str]]

    def __init__(self) -> None:
        super().__init__()
        self._loop = VirtualLoop()
        self._raised: list[object] = []
        self._loop.set_exception_handler(lambda _loop, context: self._raised.append(context))
        self._directory = Path(tempfile.mkdtemp(prefix="home"))
        self._stack = ExitStack()
        self._is_sound = True
        self.model: HomeModel | None = None

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.model = HomeModel(data.draw(st.sampled_from(self.setups)))
        self._stack.enter_context(self.model.noting_what_moves())
        self._run(self.model.begin(self._directory))

    # messages

    @rule(sender=either, topic=numbers, qos=st.integers(0, 2))
    def publish(self, sender: int, topic: int, qos: int) -> None:
        self._do(lambda model: model.publish(sender, self._topic(topic), qos))

    @rule(sender=either, topic=numbers, qos=st.integers(1, 2))
    def publish_surely(self, sender: int, topic: int, qos: int) -> None:
        self._do(lambda model: model.publish(sender, self._topic(topic), qos))

    @only("conversations")
    @rule(sender=either, topic=numbers, qos=st.integers(0, 2), conversation=st.sampled_from("kl"))
    def converse(self, sender: int, topic: int, qos: int, conversation: str) -> None:
        self._do(lambda model: model.publish(sender, self._topic(topic), qos, conversation))

    @only("conversations")
    @rule(sender=either, topic=numbers, count=st.sampled_from([2, 5, 12]), conversation=st.sampled_from("kl"))
    def converse_much(self, sender: int, topic: int, count: int, conversation: str) -> None:
        def publish(model: HomeModel) -> None:
            for n in range(count):
                model.publish(sender, self._topic(topic), 1 + n % 2, conversation if n % 3 else "")

        self._do(publish)

    @only("floods")
    @rule(topic=numbers, count=st.sampled_from([3, 9, 20, 40]))
    def flood(self, topic: int, count: int) -> None:
        def publish(model: HomeModel) -> None:
            for n in range(count):
                model.publish(n % SENDERS, self._topic(topic + n // SENDERS % 2), 1 + n % 2)

        self._do(publish)

    @rule(ms=short_ms)
    def wait(self, ms: int) -> None:
        self._do(lambda _: turn(ms / 1_000))

    @rule(ms=long_ms)
    def wait_for_long(self, ms: int) -> None:
        self._do(lambda _: turn(ms / 1_000))

    # clients

    @only("connections")
    @rule(n=numbers)
    def lose(self, n: int) -> None:
        self._do(lambda model: model.lose(self._client(n)))

    @only("connections")
    @rule(n=numbers)
    def connect(self, n: int) -> None:
        self._do(lambda model: model.connect(self._client(n)))

    @only("connections", "answers")
    @rule(n=numbers)
    def mute(self, n: int) -> None:
        self._do(lambda _: setattr(self._client(n), "mute", True))

    @only("connections", "answers")
    @rule(n=numbers)
    def hear(self, n: int) -> None:
        self._do(lambda model: model.hear(self._client(n)))

    @only("answers")
    @rule(n=numbers, writable=st.booleans())
    def let_write(self, n: int, writable: bool) -> None:
        self._do(lambda model: model.let_write(n % len(model.receivers), writable=writable))

    @only("subscriptions")
    @rule(n=either, topic_filter=st.sampled_from(FILTERS))
    def subscribe(self, n: int, topic_filter: str) -> None:
        self._do(lambda model: model.subscribe(n, topic_filter))

    @only("subscriptions")
    @rule(n=either, topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, n: int, topic_filter: str) -> None:
        self._do(lambda model: model.unsubscribe(n, topic_filter))

    @only("groups")
    @rule(n=either, group=either)
    def join(self, n: int, group: int) -> None:
        self._do(lambda model: model.join(1 + n, model.setup.groups[group]))

    @only("groups")
    @rule(n=either, group=either)
    def leave(self, n: int, group: int) -> None:
        self._do(lambda model: model.leave(1 + n, model.setup.groups[group]))

    # Kafka, routers, disk

    @only("holds")
    @rule(topic=st.sampled_from(HELD))
    def hold_acknowledgements(self, topic: str) -> None:
        self._do(lambda model: model.harness.bus.held_acks.add(topic))

    @only("holds")
    @rule(topic=st.sampled_from(HELD))
    def hold_records(self, topic: str) -> None:
        self._do(lambda model: model.harness.bus.held_stores.add(topic))

    @only("held sessions")
    @rule()
    def hold_the_session_log(self) -> None:
        self._do(lambda model: model.harness.bus.held_acks.add(model.harness.topics.sessions))

    @only("holds", "held sessions")
    @rule()
    def release(self) -> None:
        self._do(lambda model: model.release())

    @only("routers")
    @rule(n=either, delay=st.sampled_from(sorted(DELAYS_S)))
    def delay_router(self, n: int, delay: str) -> None:
        self._do(lambda model: setattr(self._router(n), "delay_s", DELAYS_S[delay]))

    @only("routers")
    @rule(n=either, stale=st.booleans())
    def let_router_forget(self, n: int, stale: bool) -> None:
        self._do(lambda _: setattr(self._router(n), "stale", stale))

    @only("stopped routers")
    @rule(n=either, stopped=st.booleans())
    def stop_router(self, n: int, stopped: bool) -> None:
        self._do(lambda model: model.route(n, stopped=stopped))

    @only("full disk")
    @rule(full=st.booleans())
    def fill_disk(self, full: bool) -> None:
        self._do(lambda model: model.harness.spool.fill_disk() if full else model.harness.spool.free_disk())

    # the home's end

    @only("crashes")
    @rule(stored=st.integers(0, 3), disk=st.sampled_from(["kept", "lost", "old"]))
    def crash(self, stored: int, disk: str) -> None:
        """So many records of each topic are stored that the home had handed to Kafka."""
        self._do(lambda model: model.crash(stored, disk))

    @only("crashes")
    @rule(when=st.sampled_from(["before", "after"]))
    def die_at_next_commit(self, when: str) -> None:
        self._do(lambda model: setattr(model.harness.spool, "dies", when))

    @only("stops")
    @rule()
    def stop(self) -> None:
        self._do(lambda model: model.stop())

    def teardown(self) -> None:
        try:
            if self.model is not None and self._is_sound:
                self._run(self.model.finish())
                self.model.look()
                self.model.check()
        finally:
            self._stack.close()
            if self.model is not None and hasattr(self.model, "harness"):
                self.model.harness.crash()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _do(self, action: Callable[[HomeModel], Awaitable[None] | None]) -> None:
        async def act() -> None:
            assert self.model is not None
            await self.model.ensure_up()
            done = action(self.model)
            if done is not None:
                await done
            self.model.look()

        self._run(act())

    def _run(self, action: Awaitable[None]) -> None:
        self._is_sound = False
        self._loop.run_until_complete(action)
        assert not self._raised, self._raised
        self._is_sound = True

    def _topic(self, number: int) -> str:
        assert self.model is not None
        return self.model.setup.topics[number % len(self.model.setup.topics)]

    def _client(self, number: int) -> Any:
        assert self.model is not None
        clients = [*self.model.receivers, *(self.model.senders if "senders" in self.events else ())]
        return clients[number % len(clients)]

    def _router(self, number: int) -> Any:
        assert self.model is not None
        return [self.model.harness.active, self.model.harness.backup][number]


def examine(events: str, *setups: Setup) -> None:
    """Plays examples of a machine with these setups; `events` are the kinds that happen, separated by commas."""
    kinds = frozenset(kind.strip() for kind in events.split(","))
    machine = type("HomeMachine", (HomeMachine,), {"setups": setups, "events": kinds})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


ORDERED = Setup(
    ("x/1", "x/2", "y/1", "z/1", "@r0", "@r1"),
    ({}, {"receive_maximum": 3}),
    (("x/1",), ("y/+",)),
    limits={"held_back_messages": 8},
)
FULL = Setup(("x/1", "x/2", "@r0", "@r1"), ORDERED.receivers, (("x/#",), ("x/1",)), reconnects=True)
SHARED = Setup(
    ("x/1", "x/2", "y/1", "y/1", "@r1"),
    ({}, {"receive_maximum": 2}, {}),
    ((), (), ()),
    groups=("$share/g/x/#", "$share/h/y/+"),
    limits={"held_back_messages": 30},
)
FORGETFUL = SHARED._replace(receivers=({}, {"receive_maximum": 2}, {"expiry_s": 0}))
CONVERSATIONS: tuple[dict[str, float], ...] = (
    {"conversation_offline_s": 3},
    {"conversation_waiting": 2},
    {"conversations": 2, "conversation_s": 5, "conversation_offline_s": 2, "conversation_waiting": 5},
)
WAITS_S = (0.0, 15.0, LEAD_S + 5)


def test_killed_at_any_moment() -> None:
    """Q1, G8, G9, R4, R8: with routes in effect, and with direct deliveries while they take effect."""
    events = "floods, connections, senders, holds, routers, full disk, crashes, stops"
    examine(events, KILLED, KILLED._replace(wait_s=15.0))


def test_subscriptions_of_any_age_and_late_routers() -> None:
    """R8, M14: across subscriptions that come and go, the inbox, and routers that are late, stale or away."""
    examine("subscriptions, routers, stopped routers", ORDERED)


def test_subscriptions_of_any_age_across_crashes() -> None:
    """R8, G8, Q1."""
    examine("subscriptions, connections, routers, stopped routers, crashes", ORDERED)


@pytest.mark.parametrize("choice", ["drop_oldest", "drop_newest", "disconnect"])
def test_full_queues(choice: str) -> None:
    """G8, G9, R8: each message is delivered or reported as dropped; at QoS 2 never both, never twice."""
    sizes = [FULL._replace(limits={"queue_messages": most, "queue_full": choice}) for most in (1, 4, 20)]
    sizes.append(FULL._replace(limits={"queue_bytes": 30, "queue_full": choice}))
    examine("floods, connections, held sessions, crashes", *sizes)


@pytest.mark.parametrize(
    "events",
    [
        "floods, answers, groups, routers",
        "floods, connections, answers, groups, holds",
        "floods, connections, answers, groups, routers, crashes",
    ],
    ids=["calm", "broken connections", "crashes"],
)
def test_shared_subscriptions(events: str) -> None:
    """R6, R8, R4, G8, G9, MQTT 5.0 4.8.2: members join, leave, break, and answer late or not at all."""
    setups = [setup._replace(wait_s=wait_s) for setup in (SHARED, FORGETFUL) for wait_s in WAITS_S]
    examine(events, *setups)


@pytest.mark.parametrize(
    "events",
    [
        "conversations, floods, answers, groups, routers",
        "conversations, connections, answers, groups, holds",
        "conversations, connections, answers, groups, crashes, stops",
    ],
    ids=["calm", "broken connections", "crashes"],
)
def test_conversations_in_share_groups(events: str) -> None:
    """R6, R8, R4, G8, MQTT 5.0 4.8.2: all of a conversation goes to one member in order, and whoever goes on with it is
    told; whatever is said of shared subscriptions above holds too."""
    setups = [
        setup._replace(wait_s=LEAD_S + 5, shares=shares) for setup in (SHARED, FORGETFUL) for shares in CONVERSATIONS
    ]
    examine(events, *setups)
