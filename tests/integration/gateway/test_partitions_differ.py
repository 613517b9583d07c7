"""A gateway whose configuration does not fit the topics does not start: it would look for sessions in other shards than
those that wrote them, and other gateways would have the same clients (G4, G14)."""

from pathlib import Path

import pytest

from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker

PATIENCE_S = 60.0


@pytest.mark.parametrize(
    ("shards", "ingress_partitions", "why"),
    [
        (8, 2, "kafka.shards = 4, but the topic {}egress has 8 partitions"),
        (4, 3, "kafka.ingress_partitions = 2, but the topic {}ingress has 3 partitions"),
    ],
)
def test_a_gateway_does_not_start_with_topics_of_another_size(
    tmp_path: Path, broker: LocalBroker, unique_prefix: str, shards: int, ingress_partitions: int, why: str
) -> None:
    broker.topics(unique_prefix, ingress_partitions, shards)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, WAYSTATION_GATEWAY__CLUSTER__ENABLED="true")
    gateway.launch()
    try:
        wait_until(lambda: gateway.ended() or "gateway ready" in gateway.log(), PATIENCE_S)
        assert gateway.ended(), "it serves clients"
        assert gateway.process.exit_code == 1
        assert why.format(unique_prefix) in gateway.log()
    finally:
        gateway.stop()
