"""A writer whose records Kafka refuses again and again (S2)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from edge.client.kafka_producer import Report
from edge.feeds.adapter import kafka_writer
from edge.feeds.adapter.kafka_writer import KafkaWriter, TopicRecord, Written
from edge.feeds.adapter.settings import KafkaSection
from tests.unit.gateway.shard.virtual_time import run

RECORDS = [TopicRecord(0, b"k", b"%d" % number, []) for number in range(3)]


class RefusingProducer:
    """Is opened at once, and refuses what it is sent, as long as `refuses` says."""

    opened: ClassVar[list[float]] = []
    refuses: ClassVar[Callable[[int], bool]] = lambda _: True

    def __init__(self, *_: Any, **__: Any) -> None:
        self._on_reports: Callable[[list[Report]], None] = lambda _: None

    async def open(self, _: Any, on_reports: Callable[[list[Report]], None]) -> int:
        self._on_reports = on_reports
        self.opened.append(asyncio.get_running_loop().time())
        assert len(self.opened) < 1_000, "it does not wait between attempts"
        return 2

    async def send(self, records: Sequence[tuple[int, TopicRecord]]) -> None:
        error = PermissionError("no right to write") if type(self).refuses(len(self.opened)) else None
        self._on_reports([Report(number, error, 10 + number) for number, _ in records])

    async def close(self) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[RefusingProducer]:
    monkeypatch.setattr(kafka_writer, "KafkaProducer", RefusingProducer)
    monkeypatch.setattr(RefusingProducer, "opened", [])
    return RefusingProducer


def test_attempts_become_rarer(producer: type[RefusingProducer], caplog: pytest.LogCaptureFixture) -> None:
    """With a Kafka user that may not write: brokers and the log are spared."""

    async def scenario() -> None:
        writer = KafkaWriter(KafkaSection(reconnect_most_s=10.0), "t")
        writing = asyncio.create_task(writer.write(RECORDS))
        await asyncio.sleep(600)  # of virtual time
        assert not writing.done()
        writing.cancel()

    run(scenario())
    assert 60 <= len(producer.opened) < 300
    assert len(caplog.records) < 10


def test_it_goes_on_soon_once_kafka_takes_them(
    producer: type[RefusingProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And after the next failure it begins with short pauses again."""
    monkeypatch.setattr(producer, "refuses", lambda opened: opened not in (20, 22))

    async def scenario() -> float:
        writer = KafkaWriter(KafkaSection(reconnect_most_s=10.0), "t")
        assert await writer.write(RECORDS) == [Written(0, 10), Written(0, 11), Written(0, 12)]
        began = asyncio.get_running_loop().time()
        monkeypatch.setattr(producer, "refuses", lambda opened: opened == 20)
        assert len(await writer.write(RECORDS)) == 3
        return asyncio.get_running_loop().time() - began

    assert run(scenario()) <= 0.2
