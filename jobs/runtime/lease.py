"""Which driver owns a checkpoint if drivers run on several machines: a lease granted by Kafka.

Two drivers on one checkpoint would each commit batches that the other does not know. All drivers share Kafka, so it
decides: the lease is membership in a consumer group of its own. One member at a time is assigned the only partition of
a topic, and keeps it while it answers (KIP-429: a partition is not taken from a member for a new one). Nothing is read.
The clock is the broker's.

Contract: until :class:`Lease` calls `lost`, no other driver has been granted the same name. The one exception is the
moment in which a driver that did not answer for `lease_s` comes back and learns that it has lost the lease. In that
moment Spark's log of offsets, which has each batch once, and the transactions of the tables keep the two apart.

A driver that has had no contact with Kafka for `lease_s` gives up too. It cannot tell whether Kafka is down, so that
nobody is granted anything, or it alone is cut off, so that another driver is: stopping is right in both cases. Its
supervisor starts it again.
"""

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jobs.errors import LeaseError
from schemas.settings import KafkaSettings
from schemas.topics import Topics, lease_group

POLL_S = 0.2
PATIENCE = 3
"""How many times `lease_s` a new driver waits: once until the old driver is given up, once for a request that the old
one repeated while Kafka was down, whose grant nobody answers, and once for the group to settle."""

log = structlog.get_logger(__name__)


class Lease:
    """The right to drive the checkpoints called `name`; `lost` is called, from a thread, if it ends before `close`.

    Waits, as long as that takes, for the lease of a driver that is gone. Raises LeaseError if another one has the lease
    and keeps it, or Kafka does not answer or refuses.
    """

    def __init__(
        self, kafka: KafkaSettings, name: str, lease_s: float, stopped: Event, lost: Callable[[], None]
    ) -> None:
        self._name = name
        self._lease_s = lease_s
        self._lost = lost
        self._held = Event()
        self._closing = Event()
        self._was_lost = False
        self._joined = False
        self._refusal = ""
        self._consumer = Consumer(
            {
                "log_level": 2,
                **kafka.client,
                "bootstrap.servers": kafka.bootstrap,
                "group.id": lease_group(kafka.prefix, name),
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": round(lease_s * 1000),
                "heartbeat.interval.ms": round(lease_s * 1000 / 5),
                "enable.auto.commit": False,
                "error_cb": self._on_error,
            }
        )
        topic = Topics(kafka.prefix).routes
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self._thread = Thread(target=self._answer, name=f"lease-{name}", daemon=True)
        self._thread.start()
        self._await(PATIENCE * lease_s, kafka.bootstrap, stopped)

    def close(self) -> None:
        """Release the lease, so that the next driver need not wait. Raises LeaseError if it was lost before."""
        self._closing.set()
        self._thread.join()
        if self._was_lost:
            raise LeaseError(
                f"this driver of {self._name} had no contact with Kafka for {self._lease_s:g} s, and stopped because "
                f"another driver may have taken over its checkpoints: start it again"
            )

    def _await(self, timeout_s: float, bootstrap: str, stopped: Event) -> None:
        deadline, is_logged = time.monotonic() + timeout_s, False
        while not self._held.wait(POLL_S) and not stopped.is_set():
            if self._joined and not is_logged:
                is_logged = True
                log.info("waiting for another driver to release its checkpoints", name=self._name, at_most_s=timeout_s)
            if self._refusal or time.monotonic() > deadline:
                self.close()
                if self._refusal:
                    raise LeaseError(f"the brokers at {bootstrap} refused the connection: {self._refusal}")
                if self._joined:
                    raise LeaseError(
                        f"another driver is running {self._name} on these topics and tables: stop it first"
                    )
                raise LeaseError(f"the brokers at {bootstrap} do not answer: check kafka.bootstrap and kafka.client")

    def _answer(self) -> None:
        """All calls of the consumer are made on this thread: those of another would wait for a poll to end."""
        try:
            while not self._closing.is_set():
                record = self._consumer.poll(POLL_S)
                if record is not None and (error := record.error()) is not None:
                    self._on_error(error)
        except KafkaException as error:
            self._refusal = error.args[0].str()
            self._end()
        finally:
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._joined = True
        if partitions:
            self._held.set()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._end()

    def _on_error(self, error: Any) -> None:
        refusals = (
            KafkaError._AUTHENTICATION,
            KafkaError._SSL,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        if error.code() in refusals:
            self._refusal = error.str()

    def _end(self) -> None:
        if self._held.is_set() and not self._closing.is_set() and not self._was_lost:
            self._was_lost = True
            log.error("lost the lease on the checkpoints, stopping", name=self._name, lease_s=self._lease_s)
            self._lost()
