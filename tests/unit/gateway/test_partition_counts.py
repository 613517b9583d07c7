"""The configuration has to fit the topics (G4)."""

import pytest

from gateway.partition_counts import check_partitions, topics_that_count
from schemas.errors import SettingsError
from schemas.settings import process_settings
from schemas.topics import DAY_MS, Topics

KAFKA = process_settings({}).kafka
TOPICS = Topics(KAFKA.prefix)
DECLARED = {one.name: one.partitions for one in TOPICS.declared(KAFKA.ingress_partitions, KAFKA.shards, DAY_MS)}


def test_topics_as_they_are_declared_fit() -> None:
    check_partitions(DECLARED, TOPICS, KAFKA)


def test_a_topic_that_is_missing_is_left_to_whoever_reads_it() -> None:
    check_partitions({}, TOPICS, KAFKA)


@pytest.mark.parametrize("topic", topics_that_count(TOPICS))
@pytest.mark.parametrize("more", [-1, 1])
def test_another_number_of_partitions_is_refused_with_setting_and_topic(topic: str, more: int) -> None:
    there = DECLARED[topic] + more
    setting = "ingress_partitions" if topic == TOPICS.ingress else "shards"
    configured = f"kafka.{setting} = {DECLARED[topic]}"
    with pytest.raises(SettingsError, match=f"^{configured}, but the topic {topic} has {there} partitions"):
        check_partitions(DECLARED | {topic: there}, TOPICS, KAFKA)
