"""Reads the end of a feed's log when an adapter starts: its own slot, and the other one (S2)."""

import contextlib
import logging
from collections.abc import Mapping
from threading import Event
from typing import Any, Final

import kafka
from kafka.errors import KafkaError

from edge.feeds.adapter.kafka_writer import consumer_settings
from edge.feeds.adapter.resume import Checkpoint, LogFold
from edge.feeds.adapter.settings import AdapterSettings
from feeds.errors import FeedRecordError
from feeds.message import FEEDS, partitions_of, topic_of
from feeds.passed import decode_either
from feeds.registry_records import feed_of

_log = logging.getLogger("waystation.feed")
POLL_MS: Final = 500
LEAST_RECORDS: Final = 2_000
"""Records of the own slot that are read at least, so that administrative messages are known that were written last."""


def read_log(
    settings: AdapterSettings, checkpoint: Checkpoint | None, *, needs_other: bool, stopping: Event
) -> tuple[LogFold, dict[int, int]]:
    """What the log's end has, and the next offset of each partition of the own slot. Blocks until it is read. Raises
    KafkaError if no broker is reached, or there is no topic; InterruptedError once `stopping` is set."""
    topic = topic_of(settings.kafka.prefix, settings.feed.name)
    own = feed_of(settings.feed.slot)
    consumer = kafka.KafkaConsumer(**consumer_settings(settings.kafka, topic))
    try:
        partitions = sorted(consumer.partitions_for_topic(topic) or ())
        if not partitions:
            raise KafkaError(f"there is no topic {topic!r}: is [kafka] prefix right, and is the feed in `feeds.names`?")
        mine, others = (
            [kafka.TopicPartition(topic, number) for number in partitions_of(feed, len(partitions))]
            for feed in (own, FEEDS[1 - own])
        )
        wanted = mine + (others if needs_other else [])
        first, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
        consumer.assign(wanted)
        offsets = checkpoint.offsets if checkpoint is not None else {}
        since = {place.partition: offsets.get(place.partition, 0) for place in mine}
        is_complete = True
        for place in wanted:
            start = max(first[place], ends[place] - settings.limits.log_records)
            if place in mine:
                if place.partition in offsets:
                    start = max(start, min(since[place.partition], ends[place] - LEAST_RECORDS))
                is_complete = is_complete and start <= since[place.partition]
            consumer.seek(place, start)
        fold = LogFold(settings.feed.adapter, checkpoint, is_complete=is_complete)
        bad = _read(consumer, wanted, set(mine), ends, since, fold, stopping)
    finally:
        with contextlib.suppress(KafkaError):
            consumer.close()
    if bad:
        _log.warning("%d records of %s are none of an adapter, and were passed over", bad, topic)
    return fold, {place.partition: ends[place] for place in mine}


def _read(
    consumer: Any,
    wanted: list[Any],
    mine: set[Any],
    ends: Mapping[Any, int],
    since: Mapping[int, int],
    fold: LogFold,
    stopping: Event,
) -> int:
    bad = 0
    left = {place for place in wanted if consumer.position(place) < ends[place]}
    while left:
        if stopping.is_set():
            raise InterruptedError("the adapter is stopping")
        for place, records in consumer.poll(POLL_MS).items():
            for record in records:
                try:
                    found = decode_either(record.key, record.headers, record.value)
                except FeedRecordError:
                    bad += 1
                    continue
                if place in mine:
                    fold.own(found, is_since=record.offset >= since[place.partition])
                else:
                    fold.other(found)
        left = {place for place in left if consumer.position(place) < ends[place]}
    return bad
