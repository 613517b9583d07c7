"""`waystation feed adapter` as a process, and what it writes to a real broker."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from feeds.errors import FeedRecordError
from feeds.message import FEEDS, FeedMessage, partition_of
from feeds.passed import PassedRecord, decode_either
from feeds.registry_records import AdapterBeat, RegistryKey, RegistryRecord, decode, feed_of
from jobs.stack.topics import admin_client, create_topics
from schemas.events import encode
from schemas.feed_words import Slot
from schemas.topics import DAY_MS, Topics
from tests.documents import ROOT
from tests.namespaces import Namespace
from tests.waiting import wait_for

FEED = "ships"
PARTITIONS = 4
CSV = 'format="csv"\nname="src"\nfrom="{}"\nfollow=true\ncsv={{columns=["n","v"]}}\nmapping={{number="n"}}'
STOP_S = 60.0
TIMEOUT_S = 1.5
"""Longer than in production: test machines are slower."""


def make_topics(bootstrap: str, prefix: str) -> Topics:
    """The topics that adapters use."""
    topics = Topics(prefix)
    declared = topics.declared(1, 1, DAY_MS, [FEED], PARTITIONS)
    create_topics(
        admin_client(bootstrap, {}), [one for one in declared if one.name in (topics.feeds, topics.feed(FEED))]
    )
    return topics


class AdapterProcess:
    """An adapter with a directory of its own below `parent`. `source`: its table [source]; `more`: further tables;
    `inside`: the network in which it runs, None for the host's."""

    def __init__(
        self,
        parent: Path,
        bootstrap: str,
        prefix: str,
        name: str,
        slot: Slot,
        source: str,
        more: str = "",
        inside: Namespace | None = None,
    ) -> None:
        self.directory, self.name, self.slot, self._inside = parent / name, name, slot, inside
        self.directory.mkdir()
        (self.directory / "adapter.toml").write_text(
            f'[feed]\nname="{FEED}"\nslot="{slot}"\nadapter="{name}"\nmachine="m-{name}"\ntimeout_s={TIMEOUT_S}\n'
            f'[source]\n{source}\n[kafka]\nbootstrap="{bootstrap}"\nprefix="{prefix}"\n'
            f"request_timeout_s=3.0\nreconnect_most_s=0.5\n{more}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "AdapterProcess":
        """Waits for nothing."""
        command = [sys.executable, "-m", "edge.cli.main", "feed", "adapter", "--config", "adapter.toml"]
        if self._inside is not None:
            command = self._inside.command(*command)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
            )
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """As an operator would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_S) == 0, self.log()
        assert "Traceback" not in self.log()

    def end(self) -> None:
        """Kills it, if it runs still."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)

    def log(self) -> str:
        """Empty before the first start."""
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""


class FeedReader:
    """Reads all that is written to the feed and to the topic `feeds`, again and again."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._topics = topics
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False, "log_level": 0}
        )
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        places = [TopicPartition(topics.feed(FEED), number, 0) for number in range(PARTITIONS)]
        self._consumer.assign([*places, TopicPartition(topics.feeds, 0, 0)])
        self.slots: dict[Slot, list[FeedMessage | PassedRecord]] = {"active": [], "backup": []}
        self.records: list[tuple[RegistryKey, RegistryRecord | None]] = []

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> None:
        """What is new, about."""
        is_more = True
        while is_more:  # beats never end
            found = self._consumer.consume(5_000, 0.1)
            is_more = len(found) > 100
            for one in found:
                if one.error() is not None:
                    continue
                if one.topic() == self._topics.feeds:
                    self.records.append(decode(one.key(), one.value()))
                    continue
                try:
                    record = decode_either(one.key(), one.headers(), one.value())
                except FeedRecordError as error:
                    raise AssertionError(f"{one.key()!r} {one.headers()!r}") from error
                slot: Slot = "active" if one.partition() < PARTITIONS // len(FEEDS) else "backup"
                assert partition_of(feed_of(slot), record.stream, PARTITIONS) == one.partition()
                self.slots[slot].append(record)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Reads until the condition holds."""

        def holds() -> bool:
            self.read()
            return condition()

        wait_for(holds, what, timeout_s)

    def say(self, key: RegistryKey, record: RegistryRecord) -> None:
        """As the administration service would."""
        self._producer.produce(self._topics.feeds, key=key.encode(), value=encode(record))
        assert self._producer.flush(30) == 0

    def numbers(self, slot: Slot) -> list[int]:
        """Of the source's messages in a slot, in the log's order."""
        return [one.sequence for one in self.slots[slot] if isinstance(one, FeedMessage) and not one.part]

    def parts(self, slot: Slot) -> list[tuple[int, int, bytes]]:
        """Administrative messages in a slot: number, part, payload."""
        return [(one.sequence, one.part, one.payload) for one in self.slots[slot] if getattr(one, "part", 0)]

    def beats(self, name: str) -> list[AdapterBeat]:
        """Of an adapter."""
        return [record for key, record in self.records if key.name == name and isinstance(record, AdapterBeat)]

    def state(self, name: str) -> str:
        """What an adapter said last."""
        found = self.beats(name)
        return found[-1].state if found else ""


class GrowingFile:
    """Numbered lines, more and more of them."""

    def __init__(self, path: Path, size: int = 20) -> None:
        self.path, self.count, self._filling = path, 0, "x" * size
        path.touch()

    @property
    def source(self) -> str:
        return CSV.format(f"file:{self.path}")

    def grow(self, lines: int) -> None:
        with self.path.open("a") as file:
            for _ in range(lines):
                self.count += 1
                file.write(f"{self.count},{self._filling}\n")


def hold_and_wait(first: AdapterProcess, second: AdapterProcess, file: GrowingFile, reader: FeedReader) -> None:
    """Starts both, of the slot `active`: `first` has it, and has written 100 lines; `second` waits for it."""
    first.start()
    file.grow(100)
    reader.until(lambda: reader.state(first.name) == "up" and 100 in reader.numbers("active"), "the first adapter")
    second.start()
    reader.until(lambda: len(reader.beats(second.name)) > 10, "the second adapter")
    assert reader.state(second.name) == "waiting"


@contextlib.contextmanager
def ended(*adapters: AdapterProcess):  # type: ignore[no-untyped-def]
    """Whatever happens, no process is left."""
    try:
        yield
    except BaseException:
        for one in adapters:
            sys.stderr.write(f"{one.name}: {one.log()[-3_000:]}\n")
        raise
    finally:
        for one in adapters:
            one.end()
