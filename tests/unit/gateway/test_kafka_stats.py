"""What is read out of librdkafka's statistics, and which records are timed."""

from typing import Any

from gateway.kafka_stats import KafkaStats

CONSUMER = """{"name": "rdkafka#consumer-1", "type": "consumer", "ts": 1, "topics": {"ws.egress": {"topic": "ws.egress",
"batchsize": {"avg": 1}, "partitions": {
"0": {"partition": 0, "hi_offset": 42, "next_offset": 40, "fetchq_cnt": 2, "consumer_lag": -1},
"1": {"partition": 1, "hi_offset": -1001, "next_offset": -1001, "fetchq_cnt": 0},
"-1": {"partition": -1, "hi_offset": -1001, "next_offset": 0, "fetchq_cnt": 0}}}}}"""

PRODUCER = """{"type": "producer", "msg_cnt": 3, "msg_size": 1234, "brokers": {
"GroupCoordinator": {"nodeid": -1, "state": "UP"}, "127.0.0.1:9092/bootstrap": {"nodeid": -1, "state": "DOWN"},
"127.0.0.1:9092/1": {"nodeid": 1, "state": "UP"}, "127.0.0.1:9093/2": {"nodeid": 2, "state": "CONNECT"}}}"""


class Stored:
    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def latency(self) -> float | None:
        return self._seconds


def test_ends_of_partitions_and_what_is_drained() -> None:
    stats = KafkaStats()
    stats.take_consumer(CONSUMER)
    assert stats.ends == {("ws.egress", 0): 42}
    assert stats.drained_to == {("ws.egress", 1): -1001}


def test_brokers_that_are_up_and_bytes_that_wait() -> None:
    stats = KafkaStats()
    stats.take_producer(PRODUCER)
    assert (stats.brokers_up, stats.waiting_bytes) == (1, 1234)


def test_statistics_that_cannot_be_read_end_nothing() -> None:
    stats = KafkaStats()
    stats.take_producer(PRODUCER)
    for nonsense in ("", "[]", '{"brokers": {"x": {"nodeid": null}}, "topics": 3}'):
        stats.take_consumer(nonsense)
        stats.take_producer(nonsense)
    assert (stats.brokers_up, stats.ends) == (0, {})


def test_a_sampled_record_is_timed_and_its_callback_called() -> None:
    stats, called = KafkaStats(), []
    for error, record in ((None, Stored(0.003)), ("refused", Stored(9.0)), (None, Stored(None))):
        stats.sampled(lambda *arguments: called.append(arguments))(error, record)
    assert len(called) == 3
    (family,) = stats.produce_seconds.collect()
    values: dict[str, Any] = {s.name: s.value for s in family.samples if not s.labels}
    assert values["waystation_kafka_produce_seconds_count"] == 1
    assert values["waystation_kafka_produce_seconds_sum"] == 0.003
    assert stats.until_sample > 1
