"""The lease of checkpoints on a real broker: one driver at a time."""

import signal
import subprocess
import sys
from threading import Event

import pytest

from harness.processes import Broker
from jobs.errors import LeaseError
from jobs.runtime.lease import Lease
from schemas.settings import KafkaSettings
from tests import draw
from tests.conftest import LocalBroker

LEASE_S = 6.0
"""The shortest that brokers allow by default."""

DRIVER = """
import sys, threading
from jobs.runtime.lease import Lease
from schemas.settings import KafkaSettings
kafka = KafkaSettings(bootstrap=sys.argv[1], prefix=sys.argv[2], ingress_partitions=2, shards=4, retention_days=1,
                      client={}, password_file="")
lease = Lease(kafka, "ledger", 6.0, threading.Event(), lambda: print("lost", flush=True))
print("held", flush=True)
sys.stdin.read()
"""


def kafka(broker: LocalBroker, prefix: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=broker.bootstrap,
        prefix=prefix,
        ingress_partitions=2,
        shards=4,
        retention_days=1,
        client={},
        password_file="",
    )


def lease(settings: KafkaSettings, name: str = "ledger", lost: Event | None = None) -> Lease:
    return Lease(settings, name, LEASE_S, Event(), (lost or Event()).set)


def driver(settings: KafkaSettings) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", DRIVER, settings.bootstrap, settings.prefix]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@draw.long_test
def test_one_driver_at_a_time_and_the_next_when_it_is_closed(broker: LocalBroker, unique_prefix: str) -> None:
    """A second driver is refused while the first has the lease, which it keeps; another name is another lease."""
    broker.topics(unique_prefix)
    settings, lost = kafka(broker, unique_prefix), Event()
    first = lease(settings, lost=lost)
    with pytest.raises(LeaseError, match="another driver is running ledger"):
        lease(settings)
    lease(settings, "router-active").close()
    assert not lost.is_set()
    first.close()
    lease(settings).close()


def test_what_a_killed_driver_had_goes_to_the_next(broker: LocalBroker, unique_prefix: str) -> None:
    """Within the time of the lease, without anybody's doing."""
    broker.topics(unique_prefix)
    settings = kafka(broker, unique_prefix)
    end(driver(settings))
    lease(settings).close()


def test_a_driver_that_did_not_answer_learns_that_it_has_lost(broker: LocalBroker, unique_prefix: str) -> None:
    """Stopped for longer than its lease, and continued: it is told, whether or not another has the lease by then."""
    broker.topics(unique_prefix)
    settings = kafka(broker, unique_prefix)
    stopped = driver(settings)
    try:
        stopped.send_signal(signal.SIGSTOP)
        other = lease(settings)
        stopped.send_signal(signal.SIGCONT)
        assert stopped.stdout is not None
        assert "lost\n" in stopped.stdout, "it comes after a line of the log"
        other.close()
    finally:
        end(stopped)


@draw.long_test
def test_kafka_away_for_longer_than_the_lease_ends_the_driver(own_broker: Broker, unique_prefix: str) -> None:
    """It cannot tell that from being cut off alone, when another one is granted: so it stops, and says why. What is
    shorter it endures. Once Kafka is back, whoever is started has the lease."""
    broker, lost = LocalBroker(own_broker.bootstrap), Event()
    broker.topics(unique_prefix)
    settings = kafka(broker, unique_prefix)
    first = lease(settings, lost=lost)
    own_broker.signal(signal.SIGSTOP)
    assert not lost.wait(LEASE_S / 2)
    own_broker.signal(signal.SIGCONT)
    with pytest.raises(LeaseError, match="another driver is running ledger"):
        lease(settings)
    assert not lost.is_set()

    own_broker.signal(signal.SIGSTOP)
    assert lost.wait(10 * LEASE_S)
    own_broker.signal(signal.SIGCONT)
    with pytest.raises(LeaseError, match=r"had no contact with Kafka for 6 s.* start it again"):
        first.close()
    lease(settings).close()


def test_a_broker_that_does_not_answer_is_named(unique_prefix: str) -> None:
    settings = kafka(LocalBroker("127.0.0.1:1"), unique_prefix)
    with pytest.raises(LeaseError, match=r"127\.0\.0\.1:1 do not answer"):
        lease(settings)


def test_missing_topics_are_named(broker: LocalBroker, unique_prefix: str) -> None:
    with pytest.raises(LeaseError, match=r"refused the connection: .*routes"):
        lease(kafka(broker, unique_prefix))
