"""What a router notices of its topic before it begins, and between its batches (Q1)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from jobs.observe.readiness import Readiness
from jobs.observe.routing import RouterMetrics, RouterReporter
from jobs.router.ingress_topic import RouterTopic
from jobs.router.query import Router
from pipelines.kafka.broker_topics import TopicUnknown
from pipelines.kafka.positions import ReadTopic
from pipelines.sources import Kafka
from pipelines.storage.checkpoints import Checkpoint, DamagedCheckpoint, TopicReplaced
from pipelines.streams import StreamId
from schemas.settings import load_settings

BASE = Path(__file__).parents[4] / "conf" / "base.toml"
NAME = "ws.ingress"
FIRST, SECOND = StreamId("router-active"), StreamId("router-active", 2)


class Broker:
    """Has one topic."""

    def __init__(self) -> None:
        self.topic: ReadTopic | None = ReadTopic(NAME, "id-1", {0: 0, 1: 0})

    def read(self, name: str) -> ReadTopic:
        if self.topic is None:
            raise TopicUnknown(f"topic {name} cannot be read")
        return self.topic


def routed(tables: Path, stream: StreamId, reached: int, batch: int = 0, is_committed: bool = True) -> None:
    """A batch of `stream`: of each partition what is before `reached`."""
    of = Path(Checkpoint(stream, str(tables)).uri)
    for log in ("offsets", "commits"):
        (of / log).mkdir(parents=True, exist_ok=True)
    ends = {NAME: {"0": reached, "1": reached}}
    (of / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
    if is_committed:
        (of / "commits" / str(batch)).write_text("v1\n{}")


def router_topic(broker: Broker, stream: StreamId, previous: list[StreamId], tables: Path) -> RouterTopic:
    topic = RouterTopic(Kafka("nowhere:1"), NAME, stream, previous, str(tables))
    topic._broker = broker  # type: ignore[assignment]
    return topic


def lost(lines: list[dict[str, object]]) -> list[tuple[object, object, object]]:
    return [
        (line["partition"], line["first"], line["end"])
        for line in lines
        if str(line["event"]).startswith("records lost")
    ]


def test_a_new_generation_begins_where_the_one_before_it_has_committed(tmp_path: Path) -> None:
    """R5: what the old one has written since may come twice, and nothing is left out."""
    stream = StreamId("router-active", 4)
    previous = [stream._replace(generation=number) for number in (3, 2, 1)]
    topic = router_topic(Broker(), stream, previous, tmp_path)
    assert topic.begin() is None
    routed(tmp_path, previous[2], 10)
    for batch in range(12):
        routed(tmp_path, previous[1], 10 * batch, batch, is_committed=batch < 11)
    routed(tmp_path, previous[0], 1000, is_committed=False)
    assert topic.begin() == json.dumps({NAME: {0: 100, 1: 100}})
    routed(tmp_path, stream, 7)
    assert topic.begin() is None, "it has positions of its own"


def test_a_new_generation_does_not_begin_elsewhere_if_the_positions_before_it_are_damaged(tmp_path: Path) -> None:
    """Cut off by a power failure: all of the topic would be routed again."""
    routed(tmp_path, FIRST, 1000)
    offsets = Path(Checkpoint(FIRST, str(tmp_path)).uri) / "offsets" / "0"
    offsets.write_text(offsets.read_text()[:-3])
    with pytest.raises(DamagedCheckpoint, match=r"offsets/0 in .*/router-active-1 is damaged"):
        router_topic(Broker(), SECOND, [FIRST], tmp_path).begin()


def test_a_topic_made_again_is_not_begun(tmp_path: Path) -> None:
    """Neither with the query's own offsets nor with those that it would inherit; without any it is read whole."""
    broker = Broker()
    assert router_topic(broker, FIRST, [], tmp_path).begin() is None
    routed(tmp_path, FIRST, 9)
    assert router_topic(broker, FIRST, [], tmp_path).begin() is None
    inherited = json.dumps({NAME: {0: 9, 1: 9}})
    assert router_topic(broker, SECOND, [FIRST], tmp_path).begin() == inherited
    broker.topic = ReadTopic(NAME, "id-2", {0: 0, 1: 0})
    for stream, previous in ((FIRST, []), (SECOND, [FIRST])):
        with pytest.raises(TopicReplaced, match=r"another kafka.prefix.* remove .*/router-active-1 and start them"):
            router_topic(broker, stream, previous, tmp_path).begin()
    assert router_topic(broker, SECOND, [], tmp_path).begin() is None


def test_it_is_noticed_while_the_router_runs(tmp_path: Path) -> None:
    """A broker that does not answer for a moment is no reason to stop."""
    broker = Broker()
    topic = router_topic(broker, FIRST, [], tmp_path)
    topic.begin()
    topic.look({0: 5, 1: 5})
    broker.topic = None
    topic.look({0: 5, 1: 5})
    broker.topic = ReadTopic(NAME, "id-2", {0: 0, 1: 0})
    with pytest.raises(TopicReplaced, match="was deleted and created again"):
        topic.look({0: 5, 1: 5})


class Query:
    """One that has ended a batch."""

    isActive = True  # noqa: N815 - Spark's name
    lastProgress = SimpleNamespace(batchId=3, sources=[SimpleNamespace(endOffset=json.dumps({NAME: {"0": 5}}))])  # noqa: N815

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def test_a_router_looks_after_each_batch_and_stops_what_reads_another_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reporter as a failure, tried again like any, and refused when it is started."""
    nothing: Any = None
    errors: list[str] = []
    reporter = RouterReporter(
        RouterMetrics(CollectorRegistry()), Readiness(), lambda _query, error: errors.append(error)
    )
    router = Router(nothing, load_settings([BASE], {"WAYSTATION_DATA": str(tmp_path)}), nothing, "active", reporter)
    broker, looks = Broker(), []
    router.ingress = router_topic(broker, FIRST, [], tmp_path)
    router.ingress.begin()
    routed(tmp_path, FIRST, 5)
    look = router.ingress.look
    monkeypatch.setattr(router.ingress, "look", lambda taken: (looks.append(taken), look(taken)))
    query: Any = Query()
    router.query = query
    for _ in range(2):
        router._look_at_topic(query, 100.0)
    assert looks == [{0: 5}]
    router.looked, broker.topic = 2, ReadTopic(NAME, "id-2", {0: 0, 1: 0})
    router._look_at_topic(query, 100.0)
    assert query.is_stopped
    assert (router.query, len(errors)) == (None, 1)
    router.watch(router.due)
    assert len(errors) == 2
    assert all("topic ws.ingress was deleted and created again" in error for error in errors)


def test_a_failed_router_is_started_again_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """Its times are those of the wall clock, because Spark's are. It would stay down for as long as the step."""
    nothing: Any = None
    errors: list[str] = []
    reporter = RouterReporter(
        RouterMetrics(CollectorRegistry()), Readiness(), lambda _query, error: errors.append(error)
    )
    router = Router(nothing, load_settings([BASE], {"WAYSTATION_DATA": str(tmp_path)}), nothing, "active", reporter)
    broker = Broker()
    broker.topic = None
    router.ingress = router_topic(broker, FIRST, [], tmp_path)
    router.watch(10_000.0)
    router.watch(10_000.1)
    assert len(errors) == 1, "it pauses"
    router.watch(6_400.0)
    router.watch(6_400.1)
    assert len(errors) == 2
    router.watch(6_500.0)
    assert len(errors) == 3


def test_what_was_deleted_unread_is_said_and_passed_over(tmp_path: Path) -> None:
    """Of the query's own offsets, of inherited ones, and between two batches. Said once: the query goes on behind it,
    and what Spark has written besides stays as it is."""
    broker = Broker()
    routed(tmp_path, FIRST, 9)
    broker.topic = ReadTopic(NAME, "id-1", {0: 7, 1: 12})
    own, heir = router_topic(broker, FIRST, [], tmp_path), router_topic(broker, SECOND, [FIRST], tmp_path)
    with capture_logs() as lines:
        assert heir.begin() == json.dumps({NAME: {0: 9, 1: 12}})
        assert own.begin() is None
    assert lost(lines) == [(1, 9, 12), (1, 9, 12)]
    assert Checkpoint(FIRST, str(tmp_path)).taken() == {NAME: {0: 9, 1: 12}}
    written = Path(Checkpoint(FIRST, str(tmp_path)).uri) / "offsets" / "0"
    assert written.read_text().splitlines()[:2] == ["v1", "{}"]
    with capture_logs() as lines:
        own.begin()
        own.look({0: 20, 1: 20})
        broker.topic = ReadTopic(NAME, "id-1", {0: 30, 1: 12})
        own.look({0: 20, 1: 20})
    assert lost(lines) == [(0, 20, 30)]


def test_a_batch_that_was_begun_only_is_moved_on_too(tmp_path: Path) -> None:
    """Spark ends it where it was to end, and asks for what lies before."""
    broker = Broker()
    routed(tmp_path, FIRST, 9)
    of = Path(Checkpoint(FIRST, str(tmp_path)).uri) / "offsets"
    (of / "1").write_text((of / "0").read_text().replace("9", "11"))
    broker.topic = ReadTopic(NAME, "id-1", {0: 0, 1: 12})
    router_topic(broker, FIRST, [], tmp_path).begin()
    assert [Checkpoint(FIRST, str(tmp_path)).reached(batch)[NAME] for batch in (0, 1)] == [
        {0: 9, 1: 12},
        {0: 11, 1: 12},
    ]
