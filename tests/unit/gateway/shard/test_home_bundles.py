"""Two gateways put copies of the same bundles on `ingress`, at any time and in any order, and the home is killed at any
moment: each recipient gets each bundle once (M14, Q1, R4, R8).

The machine is that of :mod:`tests.unit.gateway.shard.test_home_state_machine`, with an originator beside the senders.
"""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from gateway.memory_bus import MemoryRecord
from gateway.shard.rules import EVERYTHING
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from mqtt.properties import NO_PROPERTIES
from mqtt.topics import matches
from schemas.envelope import BundleMark, Meta, ingress_headers
from schemas.identity import partition_of
from schemas.settings import Settings
from tests import draw
from tests.unit.gateway.shard.home_harness import PARTITIONS, HomeHarness
from tests.unit.gateway.shard.home_model import KILLED, HomeModel, Setup
from tests.unit.gateway.shard.test_home_state_machine import FORGETFUL, ORDERED, SHARED, HomeMachine

ORIGINATOR = "agent"
EXAMPLES = draw.times(2, 150)


class Nobody:
    """A link that nobody listens to."""

    writable = False

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None: ...
    def deliver(self, message: Any, delivery: Any) -> bool:
        return False

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None: ...
    def complete(self, packet_id: int, reason: ReasonCode) -> None: ...
    def disconnect(self, reason: ReasonCode) -> None: ...


class Crowded(HomeHarness):
    """Each shard is to remember one source, which more than one is used of: none may be forgotten."""

    def settings(self) -> Settings:
        settings = super().settings()
        mesh = msgspec.structs.replace(settings.gateway.mesh, sources=1)
        return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, mesh=mesh))


class BundleModel(HomeModel):
    """`carried` are the bundles that were written: payload, topic, mark. What a receiver had subscribed to counts for
    those (`sure`) whose first copy another gateway has put on `ingress`; others may stand there or not. The originator
    has several stores (incarnations), which number and mark their bundles each for itself."""

    harness_type = Crowded

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.carried: list[tuple[bytes, str, BundleMark]] = []
        self.sure: set[bytes] = set()
        self._tried: set[bytes] = set()
        self._sequences = Counter[int]()
        self._low: dict[int, int] = {}

    def write(self, topic: str, *, store: int, ends_earlier: bool) -> None:
        """`ends_earlier`: none of the earlier bundles to the platform is alive, says the originator."""
        self._sequences[store] += 1
        sequence = self._sequences[store]
        if ends_earlier:
            self._low[store] = sequence
        mark = BundleMark(2**64 - 1 - store, sequence, self._low.get(store, 1))
        self.carried.append((b"bundle %d" % len(self.carried), topic, mark))

    def take(self, number: int, *, here: bool) -> None:
        """This gateway, or another, takes a copy of a bundle."""
        payload, topic, mark = self.carried[number % len(self.carried)]
        message_id = f"{number % len(self.carried):08x}-0000-8000-8000-000000000000"
        is_first = payload not in self._tried
        self._tried.add(payload)
        if here:
            publisher = self.harness.home.bundle_publisher(ORIGINATOR, Nobody(), EVERYTHING)
            publisher.publish(Publish(topic, payload, 2, packet_id=1), message_id, mark)
            return
        meta = Meta(2, "", None, int(self.harness.clock() * 1e6), None, None, mark)
        place = self.harness.topics.ingress, partition_of(ORIGINATOR, PARTITIONS)
        headers = ingress_headers(message_id, ORIGINATOR, meta, NO_PROPERTIES)
        self.harness.broker.append(MemoryRecord(place, topic.encode(), payload, headers))
        if is_first:
            self.sure.add(payload)
            for n in range(len(self.receivers)):
                filters = {f"@r{n}"} if topic.startswith("@") else self.granted[n]
                self.due[n][payload] = {f for f in filters if matches(f, topic)}

    def check(self) -> None:
        """Those of `HomeModel`, but for completion by id, which cannot count copies that different shards wanted."""
        bundles = {ids for ids, payload in self._payloads().items() if payload.startswith(b"bundle")}
        published = self.harness.published
        completed = self.harness.completed
        self.harness.published = lambda: {i: p for i, p in published().items() if i not in bundles}  # type: ignore[method-assign]
        self.harness.completed = lambda: completed() - bundles  # type: ignore[method-assign]
        super().check()
        must = self._must_come()
        wanted = Counter(payload for payload, *_ in self.carried)
        for n, receiver in enumerate(self.receivers):
            got = Counter(receiver.payloads)
            for payload, *_ in self.carried:
                assert got[payload] <= wanted[payload], f"{receiver.name} got {payload!r} {got[payload]} times"
                if payload in must & self.sure and self.due[n][payload]:
                    assert got[payload], f"{receiver.name} lost {payload!r}"
        for payload, topic, _ in self.carried:
            if any(matches(group.split("/", 2)[2], topic) for group in self.setup.groups):
                names = [name for name, given in self.given if given == payload]
                assert len(names) <= 1 or not self._keeps, f"{payload!r} went to {names}"
                assert names or payload not in must, f"{payload!r} is lost"

    @property
    def _keeps(self) -> bool:
        return all(options.get("expiry_s", 1) for options in self.setup.receivers)

    def _must_come(self) -> set[bytes]:
        """The payloads whose first copy on `ingress` was alive, by what stood before it."""
        found, low = set(), dict[int, int]()
        for record in self.harness.broker.partitions[self.harness.topics.ingress, partition_of(ORIGINATOR, PARTITIONS)]:
            mark = Meta.decode((record.headers() or [])[2][1]).bundle
            if mark is not None:
                store = mark.incarnation
                if mark.sequence >= low.get(store, 0):
                    found.add(record.value() or b"")
                low[store] = max(low.get(store, 0), mark.low_water)
        return found


class BundleMachine(HomeMachine):
    model: BundleModel | None

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.model = BundleModel(data.draw(st.sampled_from(self.setups)))
        self._stack.enter_context(self.model.noting_what_moves())
        self._run(self.model.begin(self._directory))

    @rule(
        topic=st.integers(0, 5),
        store=st.integers(0, 2),
        ends_earlier=st.booleans(),
        copies=st.lists(st.booleans(), max_size=3),
    )
    def carry(self, topic: int, store: int, ends_earlier: bool, copies: list[bool]) -> None:
        def write(model: HomeModel) -> None:
            assert isinstance(model, BundleModel)
            model.write(self._topic(topic), store=store, ends_earlier=ends_earlier)
            for here in copies:
                model.take(len(model.carried) - 1, here=here)

        self._do(write)

    @rule(back=st.integers(1, 6), here=st.booleans())
    def copy(self, back: int, here: bool) -> None:
        def take(model: HomeModel) -> None:
            assert isinstance(model, BundleModel)
            if model.carried:
                model.take(max(0, len(model.carried) - back), here=here)

        self._do(take)


@pytest.mark.parametrize(
    ("events", "setups"),
    [
        ("connections, holds, routers, full disk, crashes, stops", [KILLED, KILLED._replace(wait_s=15.0)]),
        ("subscriptions, connections, routers, stopped routers, crashes", [ORDERED]),
        ("connections, answers, groups, routers, crashes", [SHARED, SHARED._replace(wait_s=15.0), FORGETFUL]),
    ],
    ids=["killed", "subscriptions", "groups"],
)
def test_each_recipient_gets_each_bundle_once(events: str, setups: list[Setup]) -> None:
    """M14: however many copies there are, wherever they stand, and whatever is killed and when."""
    kinds = frozenset(kind.strip() for kind in events.split(","))
    machine = type("BundleMachine", (BundleMachine,), {"setups": tuple(setups), "events": kinds})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
