"""Ticks of routes and of presence (R3, R12): they go on, whatever the broker says for a moment."""

from threading import Event, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jobs.ledger.__main__ import PRESENCE_TICK, tick


class OnceUnknown:
    """A producer to which the topic is unknown at first."""

    def __init__(self) -> None:
        self.calls, self.has_ticked = 0, Event()

    def produce(self, *_: Any, **options: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
        self.has_ticked.set()

    def poll(self, timeout: float) -> None: ...

    def purge(self) -> None: ...


def test_ticks_go_on_after_an_error() -> None:
    stopped, producer = Event(), OnceUnknown()
    Thread(target=tick, args=(producer, "presence", 1, PRESENCE_TICK, 0.01, stopped), daemon=True).start()
    try:
        assert producer.has_ticked.wait(10)
    finally:
        stopped.set()
