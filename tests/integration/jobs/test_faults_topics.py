"""Topics that are not what a checkpoint knows: said and refused, never passed over in silence (Q1)."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from jobs.ledger.__main__ import Supervised
from jobs.stack.topics import admin_client, create_topics, declared_topics
from pipelines.kafka.starting_offsets import RecordsDeleted
from pipelines.storage.checkpoints import TopicReplaced
from tests.conftest import LocalBroker
from tests.integration.jobs.ledger_harness import LedgerHarness
from tests.waiting import wait_for

QUERY = "messages"


@pytest.fixture
def harness(spark: SparkSession, broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> LedgerHarness:
    """With a round that is in the table."""
    harness = LedgerHarness(spark, broker, unique_prefix, tmp_path)
    harness.say_round()
    assert harness.run([QUERY]) == {}
    return harness


@pytest.fixture
def admin(broker: LocalBroker) -> AdminClient:
    return admin_client(broker.bootstrap, {})


def test_a_topic_made_again_is_refused_until_its_checkpoint_is_removed(
    spark: SparkSession, harness: LedgerHarness, admin: AdminClient
) -> None:
    """Its offsets may even go on further than the old one's: what stands before would be lost. A query that is refused
    is tried again like any that fails; then the new topic is read whole."""
    topic = harness.topics.ingress
    admin.delete_topics([topic])[topic].result()
    wait_for(lambda: topic not in admin.list_topics().topics, "the topic is gone")
    create_topics(admin, declared_topics(harness.settings))
    for _ in range(4):
        harness.say_round()
    failures: list[str] = []
    query = Supervised(spark, QUERY, harness.starts()[QUERY], 2.0, lambda _name, error: failures.append(error))
    query.watch(0.0)
    query.watch(1.0)
    query.watch(2.0)
    assert len(failures) == 2
    assert all("was deleted and created again after query messages had read it" in error for error in failures)
    with pytest.raises(TopicReplaced):
        harness.run([QUERY])
    shutil.rmtree(harness.checkpoint(QUERY))
    assert harness.run([QUERY]) == {}
    assert harness.found()[QUERY] == harness.expected()[QUERY]


def test_records_that_retention_took_are_named_and_then_passed_over(harness: LedgerHarness, admin: AdminClient) -> None:
    """Q1: the query does not go on by itself; begun anew it says again what is missing, and takes the rest."""
    before = harness.found()[QUERY]
    harness.say_round()
    ends = [harness.end(harness.topics.ingress, partition) for partition in range(2)]
    lost = TopicPartition(harness.topics.ingress, 0, ends[0] - 1)
    admin.delete_records([lost])[lost].result()
    with pytest.raises(RecordsDeleted, match=rf"offsets 3 to {ends[0] - 2} of partition 0; to continue without them"):
        harness.run([QUERY])
    shutil.rmtree(harness.checkpoint(QUERY))
    with capture_logs() as lines:
        assert harness.run([QUERY]) == {}
    said = [line for line in lines if line["event"].startswith("records lost")]
    assert [(line["partition"], line["first"], line["end"]) for line in said] == [(0, 3, ends[0] - 1)]
    found = harness.found()[QUERY]
    assert max(found.values()) == 1
    assert found - before == Counter(["1.1"]), "of partition 1; the last of partition 0 is a bad record"


def test_a_feed_that_is_deleted_or_made_again_does_not_stop_the_others(
    harness: LedgerHarness, admin: AdminClient
) -> None:
    """S5: what remained unread of it is lost, and the ledger says so; a new feed of its name is read from its
    beginning."""
    assert harness.run(["feed_copies"]) == {}
    gone, again = harness.topics.feed("0"), harness.topics.feed("1")
    for topic in (gone, again):
        admin.delete_topics([topic])[topic].result()
        wait_for(lambda topic=topic: topic not in admin.list_topics().topics, "the topic is gone")
    copies = "SELECT feed, sequence, slot FROM feed_copies WHERE sequence = 7"
    copy = [("feed", b"1;7;0;1;1;north")]
    harness.make_feed(1)
    for topic, partition in ((again, 0), (harness.topics.feed("new"), 1)):
        harness.make_feed("new")
        harness.say(topic, "radar@3", b"x", headers=copy, partition=partition)
    harness.flush()
    with capture_logs() as lines:
        assert harness.run(["feed_copies"]) == {}
    said = {line["topic"]: line["event"] for line in lines if line["event"].startswith("the topic of a feed")}
    assert said == {
        gone: "the topic of a feed was deleted",
        again: "the topic of a feed was deleted and created again: reading the new one",
    }
    assert sorted(harness.rows(copies)) == [("1", 7, "active"), ("new", 7, "backup")]
    assert sorted(harness.rows("SELECT feed, slot FROM feed_copies WHERE sequence = 0")) == [
        ("0", "active"), ("0", "backup"),
    ]  # fmt: skip
