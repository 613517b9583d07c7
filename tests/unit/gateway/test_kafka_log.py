"""Logs of Kafka's clients while a broker is away."""

import logging

from gateway.kafka_log import EVERY_S, FacilityFilter, LogLimit


def line(facility: str, client: str) -> logging.LogRecord:
    return logging.LogRecord("librdkafka", logging.ERROR, "", 0, "%s [%s] %s", (facility, client, "x"), None)


def test_each_kind_is_logged_once_a_second() -> None:
    """Whatever client tells of it."""
    now = [0.0]
    limit = FacilityFilter(LogLimit(lambda: now[0]))
    assert limit.filter(line("FAIL", "consumer-1"))
    assert not limit.filter(line("FAIL", "consumer-2"))
    assert limit.filter(line("SESSTMOUT", "consumer-2"))
    now[0] = EVERY_S
    assert limit.filter(line("FAIL", "consumer-2"))
    assert not limit.filter(line("FAIL", "consumer-1"))


def test_a_line_without_a_facility_passes() -> None:
    record = logging.LogRecord("librdkafka", logging.WARNING, "", 0, "plain", None, None)
    assert FacilityFilter(LogLimit(lambda: 0.0)).filter(record)
