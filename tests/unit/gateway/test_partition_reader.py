"""What a reader says of a partition's end: never what the consumer knew before the partition was assigned (Q7)."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from gateway import partition_reader
from gateway.partition_reader import KafkaPartitionReader, Read

PARTITION = ("spool", 3)


class FakeConsumer:
    """`cached`: the end that it has from an earlier assignment; `ends`: what the broker says, one after the other, and
    then always the last; None: it does not answer."""

    cached = 100
    ends: list[int | None]
    asked = 0

    def __init__(self, _settings: dict[str, Any]) -> None: ...

    def incremental_assign(self, _: Iterable[TopicPartition]) -> None: ...

    def incremental_unassign(self, _: Iterable[TopicPartition]) -> None: ...

    def consume(self, _most: int, _timeout_s: float) -> list[Any]:
        time.sleep(0.001)
        return []

    def get_watermark_offsets(self, _: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self.cached

    def offsets_for_times(self, asked: list[TopicPartition], *, timeout: float) -> list[TopicPartition]:
        end = self.ends[min(self.asked, len(self.ends) - 1)]
        type(self).asked += 1
        if end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(one.topic, one.partition, end) for one in asked]

    def close(self) -> None: ...


async def first_end(position: int) -> int:
    loop, found = asyncio.get_running_loop(), asyncio.Queue[Read]()

    def take(reads: dict[tuple[str, int], Read]) -> None:
        found.put_nowait(reads[PARTITION])

    reader = KafkaPartitionReader({}, loop, take, lambda error: pytest.fail(str(error)))
    reader.assign({PARTITION: position}, 7)
    read = await asyncio.wait_for(found.get(), 10)
    await reader.stop(5)
    assert read.token == 7
    return read.end


@pytest.mark.parametrize(
    ("position", "ends", "expected"),
    [
        (100, [100], 100),  # it stands where it stood
        (50, [100], 100),
        (500, [500], 500),  # the home of the shard was here meanwhile, and wrote
        (500, [None, None, 520], 520),
        (500, [3], 3),  # it is another topic
    ],
)
def test_an_end_from_before_is_not_taken_for_the_present_one(
    position: int, ends: list[int | None], expected: int
) -> None:
    """A standby wipes a file that has more than there is of its topic: it must not be told that wrongly."""

    class Fake(FakeConsumer):
        pass

    Fake.ends = ends
    with patch.object(partition_reader, "Consumer", Fake):
        assert asyncio.run(first_end(position)) == expected
    assert Fake.asked == len(ends)
