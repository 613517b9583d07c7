"""A gateway that is stopped before it has read who owns what (G4, Q1)."""

import asyncio
from typing import cast

import pytest

from gateway.console.cluster import ClusterSources
from gateway.errors import BusError
from gateway.leases.control import Control
from gateway.leases.joining import Cluster
from tests.unit.gateway.shard.virtual_time import run

SOON_S = 0.1


class WithoutKafka:
    """The control of a gateway for which `leases` cannot be read: after half a minute it says so."""

    def __init__(self) -> None:
        self.is_over = False

    async def start(self) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            self.is_over = True
        raise BusError("Kafka does not answer")

    def leave(self) -> None:
        """There is nothing to give up, and nobody says that all is given up."""

    async def drained(self) -> None:
        await asyncio.Event().wait()

    def stop(self) -> None:
        """It has not begun."""


def cluster_without_kafka() -> tuple[Cluster, WithoutKafka]:
    control, cluster = WithoutKafka(), Cluster.__new__(Cluster)
    cluster.control = cast(Control, control)
    return cluster, control


def test_it_does_not_wait_for_kafka() -> None:
    """A supervisor would kill it meanwhile."""

    async def scenario() -> None:
        cluster, control = cluster_without_kafka()
        stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(SOON_S, stopping.set_result, None)
        async with asyncio.timeout(2 * SOON_S):
            await cluster.take_part(stopping, ClusterSources("a"))
            await cluster.give_up()
        assert control.is_over

    run(scenario())


def test_otherwise_it_ends_with_what_kafka_says() -> None:
    async def scenario() -> None:
        cluster, _ = cluster_without_kafka()
        with pytest.raises(BusError):
            await cluster.take_part(asyncio.get_running_loop().create_future(), ClusterSources("a"))

    run(scenario())
