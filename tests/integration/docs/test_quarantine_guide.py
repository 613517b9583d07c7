"""The guide's way to have quarantined records read again writes each of them once more, as it was."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.topics import Topics
from tests.conftest import LocalBroker

GUIDE = Path(__file__).parents[3] / "docs" / "data-engineers.md"
RECORDS = [
    (b"a", b"0", [("h", b"\0"), ("h", b"1")]),
    (b"b", b"1", None),
    (None, b"2", [("id", b"x")]),
    (b"d", None, None),
]


def test_records_are_written_again_as_they_were(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics: Topics = broker.topics(unique_prefix)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value, headers in RECORDS:
        producer.produce(topics.ingress, value, key, 1, headers=headers)
    assert producer.flush(30) == 0
    places = [{"topic": topics.ingress, "partition": 1, "offset": offset} for offset in (0, 2, 3)]
    (tmp_path / "places.json").write_text(json.dumps(places))
    monkeypatch.chdir(tmp_path)
    (section,) = re.findall(
        r"### Reading quarantined records again.*?```python\n(.*?)```", GUIDE.read_text(), re.DOTALL
    )
    exec(section.replace("broker:9092", broker.bootstrap), {})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics.ingress, 1, len(RECORDS))])
    found = consumer.consume(len(places), 30)
    consumer.close()
    assert [(one.key(), one.value(), one.headers()) for one in found] == [RECORDS[n] for n in (0, 2, 3)]
