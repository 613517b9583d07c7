"""Reads both slots' partitions and the topic `feeds` on a thread of its own, and hands batches to the event loop (S3).

The thread polls, decodes and posts; the loop decides. Posts are acknowledged, so that a loop that is busy, or an
application that does not take its items, stops the reading, and nothing piles up. A partition that is ahead of its
sibling in the other slot, by the broker's append times, pauses: while a backlog is read, one copy must not fill the
merger before the other is read.

If kafka-python gives up (it goes on over outages by itself), the thread makes a new consumer and reads on.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final, NamedTuple

from kafka import errors
from kafka.structs import TopicPartition

from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber.batch import Batch
from edge.feed_subscriber.errors import FeedUnavailable
from edge.feed_subscriber.following import Command, Follow, TakeUp, Unfollow
from edge.feed_subscriber.kafka_consumer import FeedConsumer, is_final, unavailable
from edge.feed_subscriber.kafka_records import FeedRecords
from edge.feed_subscriber.replay import ReadPosition
from feeds.message import sibling_of

_log: Final = logging.getLogger("waystation.feeds")
POLL_MS: Final = 50
REPORTS: Final = 4
"""Posts that the loop may have before it."""
AHEAD_MS: Final = 200
"""By how much a partition may be ahead of its sibling before it pauses."""
_ANSWERED_S: Final = 0.25
_STALLED_S: Final = 5.0  # with more before it a partition may be silent: it is read from what was fetched
_QUIET_S: Final = 0.1
_AGAIN_S: Final = 0.5


class Started(NamedTuple):
    """A partition is read from here on."""

    partition: int
    episode: int
    position: ReadPosition


class RegistryEntry(NamedTuple):
    """A record of the topic `feeds`; `is_old`: it was there before the reader began."""

    key: bytes | None
    value: bytes | None
    is_old: bool


class Report(NamedTuple):
    """What the thread has, in order. `is_read`: all that can be read is read up to its end."""

    started: list[Started]
    registry: list[RegistryEntry]
    batches: list[Batch]
    is_read: bool


class KafkaReader:
    """`post` is called on the thread with each report; the loop answers with :meth:`acknowledge`. `fail` is called with
    an error that ends the reading."""

    def __init__(
        self,
        brokers: list[str],
        options: KafkaOptions,
        topic: str,
        feeds_topic: str,
        streams: frozenset[str] | None,
        connect_s: float,
        post: Callable[[Report], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._brokers, self._options, self._connect_s = brokers, options, connect_s
        self._topic, self._feeds = topic, TopicPartition(feeds_topic, 0)
        self._records = FeedRecords(streams)
        self._post, self._fail = post, fail
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._todo: deque[Command] = deque()
        self._credits = threading.Semaphore(REPORTS)
        self._may_read = threading.Event()
        self._may_read.set()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waystation-feed", daemon=True)
        self._consumer: FeedConsumer
        self.partitions = 0
        self.known: list[RegistryEntry] = []
        """What the topic `feeds` had at the beginning; after :meth:`open`."""
        self._episodes: dict[int, int] = {}
        self._positions: dict[int, ReadPosition] = {}
        self._paused: set[int] = set()
        self._started: list[Started] = []
        self._feeds_at = self._feeds_old = 0
        self._has_feeds = False
        self._posted_at = 0.0

    # -- for the loop --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connects; blocks. Raises FeedUnavailable."""
        self._consumer = FeedConsumer(self._brokers, self._options, self._connect_s)
        try:
            self.partitions = self._consumer.partitions_of(self._topic)
            if self.partitions < 2 or self.partitions % 2:
                raise FeedUnavailable(
                    f"topic {self._topic} has {self.partitions} partitions, and a feed's has an even number: is the "
                    "feed's name right, and the prefix?"
                )
            self._has_feeds = self._consumer.partitions_of(self._feeds.topic) > 0
            if self._has_feeds:
                self._feeds_at = self._consumer.kafka.beginning_offsets([self._feeds])[self._feeds]
                self._feeds_old = self._consumer.kafka.end_offsets([self._feeds])[self._feeds]
                self.known = self._read_known()
        except errors.KafkaError as error:
            self._consumer.close()
            raise unavailable(error, f"{self._topic} cannot be read") from error
        except BaseException:
            self._consumer.close()
            raise

    def _read_known(self) -> list[RegistryEntry]:
        """The topic `feeds` up to its end; part of it if it takes too long, and the rest later."""
        found: list[RegistryEntry] = []
        consumer, until = self._consumer.kafka, time.monotonic() + self._connect_s
        consumer.assign([self._feeds])
        consumer.seek(self._feeds, self._feeds_at)
        while consumer.position(self._feeds) < self._feeds_old and time.monotonic() < until:
            for records in consumer.poll(POLL_MS).values():
                found += [RegistryEntry(one.key, one.value, one.offset < self._feeds_old) for one in records]
                self._feeds_at = records[-1].offset + 1
        return found

    def begin_positions(self, *, at_end: bool) -> Mapping[int, ReadPosition]:
        """The first or the next offset of each partition; blocks. Before :meth:`start`. Raises FeedUnavailable."""
        partitions = [TopicPartition(self._topic, number) for number in range(self.partitions)]
        try:
            begins = self._consumer.kafka.beginning_offsets(partitions)
            if not at_end:
                return {one.partition: ReadPosition(begins[one], 0) for one in partitions}
            ends = self._consumer.kafka.end_offsets(partitions)
            last_ms = [self._consumer.last_append_ms(one, begins[one], ends[one]) for one in partitions]
        except errors.KafkaError as error:
            raise unavailable(error, f"the offsets of {self._topic} are not known") from error
        newest = [max(one, last_ms[sibling_of(at, self.partitions)]) for at, one in enumerate(last_ms)]
        return {one.partition: ReadPosition(ends[one], newest[one.partition]) for one in partitions}

    def start(self) -> None:
        """Begins to read what :meth:`command` says."""
        self._thread.start()

    def command(self, command: Command) -> None:
        """Which partitions to read."""
        self._commands.put(command)

    def acknowledge(self) -> None:
        """The loop has taken a report."""
        self._credits.release()

    def pause(self, is_paused: bool) -> None:
        """The application has too much before it, or takes it again."""
        (self._may_read.clear if is_paused else self._may_read.set)()

    def stop(self) -> None:
        """Ends the thread; blocks until it has ended."""
        self._is_stopped.set()
        self._may_read.set()
        self._credits.release()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._consumer.close()

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._assign()
                while not self._is_stopped.is_set():
                    self._turn()
            except Exception as error:  # kafka-python raises what its sockets and threads raise, too
                if is_final(error):
                    self._fail(unavailable(error, f"{self._topic} may not be read"))
                    break
                _log.warning("reading %s has failed, and begins anew: %r", self._topic, error)
                self._renew()
        self._consumer.close()

    def _renew(self) -> None:
        self._consumer.close()
        while not self._is_stopped.wait(_AGAIN_S):
            try:
                self._consumer = FeedConsumer(self._brokers, self._options, self._connect_s)
                return
            except FeedUnavailable as error:
                _log.warning("%s", error)

    def _turn(self) -> None:
        self._obey()
        if not self._may_read.wait(_QUIET_S):
            self._say(Report([], [], [], is_read=False))
            return
        if not self._episodes and not self._has_feeds:
            self._is_stopped.wait(POLL_MS / 1000)
        polled = self._consumer.poll(POLL_MS)
        registry: list[RegistryEntry] = []
        batches: list[Batch] = []
        for partition, records in polled.items():
            if partition == self._feeds:
                registry += [RegistryEntry(one.key, one.value, one.offset < self._feeds_old) for one in records]
                self._feeds_at = records[-1].offset + 1
            elif records and partition.partition in self._episodes:
                number = partition.partition
                batch = self._records.batch(number, self._episodes[number], records)
                self._positions[number] = batch.end
                batches.append(batch)
        self._balance()
        self._say(Report([], registry, batches, self._is_read()))

    def _say(self, report: Report) -> None:
        """Posts a report that says something, or one after a while."""
        now = time.monotonic()
        started, self._started = self._started, []
        if not (started or report.registry or report.batches) and now < self._posted_at + _QUIET_S:
            return
        self._posted_at = now
        while not self._credits.acquire(timeout=_QUIET_S):
            if self._is_stopped.is_set():
                return
        self._post(report._replace(started=started))

    def _obey(self) -> None:
        while not self._commands.empty():
            self._todo.append(self._commands.get())
        has_changed = bool(self._todo)
        while self._todo:
            command = self._todo[0]
            if isinstance(command, Unfollow):
                for partition in command.partitions:
                    self._episodes.pop(partition, None)
            else:
                self._follow(command)
            self._todo.popleft()  # it is done; after an error it is tried again
        if has_changed:
            self._assign()

    def _follow(self, command: Follow) -> None:
        positions = {
            partition: self._position(partition, where) if isinstance(where, TakeUp) else where
            for partition, where in command.partitions.items()
        }
        for partition, position in positions.items():
            self._episodes[partition], self._positions[partition] = command.episode, position
            self._started.append(Started(partition, command.episode, position))

    def _position(self, partition: int, where: TakeUp) -> ReadPosition:
        at = TopicPartition(self._topic, partition)
        found = self._consumer.kafka.offsets_for_times({at: where.append_ms})[at]
        if found is not None:
            return ReadPosition(found.offset, where.append_ms)
        return ReadPosition(self._consumer.kafka.end_offsets([at])[at], where.append_ms)

    def _assign(self) -> None:
        """Lets the consumer read what is to be read, from where it was."""
        consumer = self._consumer.kafka
        partitions = {number: TopicPartition(self._topic, number) for number in self._episodes}
        consumer.assign([*partitions.values(), *([self._feeds] if self._has_feeds else [])])
        for number, partition in partitions.items():
            consumer.seek(partition, self._positions[number].offset)
            consumer.resume(partition)
        if self._has_feeds:
            consumer.seek(self._feeds, self._feeds_at)
        self._paused.clear()

    def _balance(self) -> None:
        """Pauses partitions that are ahead of their siblings, and resumes them when these have caught up."""
        for number in self._episodes:
            sibling = sibling_of(number, self.partitions)
            is_ahead = (
                sibling in self._episodes
                and not self._is_at_end(sibling)
                and self._is_answered(sibling)
                and self._positions[number].append_ms > self._positions[sibling].append_ms + AHEAD_MS
            )
            if is_ahead is not (number in self._paused):
                partition = TopicPartition(self._topic, number)
                (self._consumer.kafka.pause if is_ahead else self._consumer.kafka.resume)(partition)
                (self._paused.add if is_ahead else self._paused.discard)(number)

    def _is_read(self) -> bool:
        """Whether a broker answers, and what brokers answer for is read up to its end. A feed whose brokers are away
        does not count, unless all are."""
        answered = [number for number in self._episodes if self._is_answered(number) or number in self._paused]
        return bool(answered) and all(self._is_at_end(number) for number in answered)

    def _is_answered(self, number: int) -> bool:
        """Whether the partition is read: records of it are here, or a broker has answered that there are none."""
        silent_s = time.monotonic() - self._consumer.answered_at(TopicPartition(self._topic, number))
        return silent_s < (_ANSWERED_S if self._is_at_end(number) else _STALLED_S)

    def _is_at_end(self, number: int) -> bool:
        partition = TopicPartition(self._topic, number)
        end = self._consumer.kafka.highwater(partition)
        if end is None:
            return False
        # Records of transactions are read, and not given to us.
        return self._positions[number].offset >= end or bool(self._consumer.kafka.position(partition) >= end)
