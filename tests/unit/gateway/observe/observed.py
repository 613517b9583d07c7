"""A home in memory behind real sockets: MQTT over TCP, and what looks at it over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.console.opening import open_console
from gateway.feeds.table import FeedTable
from gateway.host.host_server import HostServer
from gateway.host.tcp import MqttTcpProtocol
from gateway.kafka_stats import KafkaStats
from gateway.members.table import MemberTable
from gateway.observe import readiness, session_stats
from gateway.observe.feed_metrics import FeedMetrics
from gateway.observe.member_metrics import MemberMetrics
from gateway.observe.metrics import Sources
from gateway.observe.observer import Observer
from gateway.observe.readiness import Readiness
from schemas.settings import Settings
from tests.unit.gateway.observe.leases_seen import LeasesSeen
from tests.unit.gateway.shard.home_harness import HomeHarness

R = TypeVar("R")

HOST = "127.0.0.1"


class ObservedHarness(HomeHarness):
    """A harness whose gateway has settings of its own; `ledger` is what it knows of the ledger."""

    def __init__(self, directory: Path, gateway: dict[str, Any], ledger: dict[str, Any] | None = None) -> None:
        super().__init__(directory)
        self._gateway = gateway
        self._ledger = ledger or {}

    def settings(self) -> Settings:
        settings = super().settings()
        return msgspec.structs.replace(
            settings,
            gateway=msgspec.structs.replace(settings.gateway, **self._gateway),
            ledger=msgspec.structs.replace(settings.ledger, **self._ledger),
        )


class Observed:
    """`kafka_fault` is what Kafka answers to readiness, "" if all is well; `leases` are who has the shards, None unless
    the gateway is one of several."""

    def __init__(self, harness: ObservedHarness, in_cluster: bool = False) -> None:
        self.harness = harness
        self.kafka = KafkaStats()
        self.kafka_fault = ""
        self.is_consuming = True
        self.hosts = HostServer(
            harness.settings().gateway, harness.home, harness.clock, lambda: harness.bus.in_flight, harness.fatal.append
        )
        self.readiness = Readiness(
            harness.topics.egress,
            harness.topics.ingress,
            harness.home,
            self.kafka,
            lambda: self.is_consuming,
            self._find_fault,
        )
        self.members = MemberTable(10, 2.0)
        members = MemberMetrics(self.members, harness.loop_time)
        self.feeds = FeedTable(msgspec.structs.replace(harness.settings().feeds, names=["radar"]))
        others: tuple[Collector, ...] = (members, FeedMetrics(self.feeds, harness.loop_time))
        self.leases = self._leases() if in_cluster else None
        if self.leases is not None:
            others += (self.leases.metrics, self.leases.standby_metrics)
        sources = Sources(
            harness.node, harness.home, self.hosts, lambda: harness.bus.in_flight, self.kafka, "1.2.3", others
        )
        self.observer = Observer(sources, harness.home, self.readiness)
        has_console = harness.settings().gateway.console.enabled
        cluster = None if self.leases is None else self.leases.sources
        self.sampler = open_console(sources, self.observer, self.members, self.feeds, cluster) if has_console else None
        self.http: aiohttp.ClientSession
        self.url = ""
        self.mqtt_port = 0

    def _leases(self) -> LeasesSeen:
        settings = self.harness.settings()
        return LeasesSeen(settings.gateway.name, settings.kafka.shards, self.members, self.harness.loop_time)

    async def _find_fault(self, topic: str) -> str:
        return self.kafka_fault

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """Status, and the decoded JSON."""
        return await self.request("GET", path, **options)

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.http.request(method, self.url + path, **options) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    async def samples(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """What `/metrics` says: by name and values of labels, which are in the order of their names."""
        async with self.http.get(self.url + "/metrics") as answer:
            assert answer.status == 200
            text = await answer.text()
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@asynccontextmanager
async def observed(directory: Path, *, ledger: dict[str, Any] | None = None, **gateway: Any) -> AsyncIterator[Observed]:
    """A gateway that serves clients and observers, each time with fresh figures; `gateway` are settings of
    `[gateway]`, `ledger` of `[ledger]`."""
    async with _observed(directory, False, gateway, ledger) as this:
        yield this


@asynccontextmanager
async def observed_in_cluster(directory: Path, **gateway: Any) -> AsyncIterator[tuple[Observed, LeasesSeen]]:
    """The same gateway as one of several: what it has read on `leases` is up to the test."""
    async with _observed(directory, True, gateway) as this:
        assert this.leases is not None
        yield this, this.leases


@asynccontextmanager
async def _observed(
    directory: Path, in_cluster: bool, gateway: dict[str, Any], ledger: dict[str, Any] | None = None
) -> AsyncIterator[Observed]:
    with patch.object(session_stats, "FRESH_S", 0.0), patch.object(readiness, "FRESH_S", 0.0):
        async with _running(ObservedHarness(directory, gateway, ledger), in_cluster) as this:
            yield this


@asynccontextmanager
async def _running(harness: ObservedHarness, in_cluster: bool) -> AsyncIterator[Observed]:
    await harness.start()
    this = Observed(harness, in_cluster)
    port = await this.observer.start(HOST, 0)
    if this.sampler is not None:
        this.sampler.start()
    this.readiness.phase = ""
    tcp = await asyncio.get_running_loop().create_server(lambda: MqttTcpProtocol(this.hosts), HOST, 0)
    this.url, this.mqtt_port = f"http://{HOST}:{port}", tcp.sockets[0].getsockname()[1]
    try:
        async with aiohttp.ClientSession() as this.http:
            yield this
    finally:
        tcp.close()
        await this.hosts.stop()
        if this.sampler is not None:
            this.sampler.stop()
        await this.observer.stop()
        await harness.stop()
        await asyncio.sleep(0)  # sockets close
    assert not harness.fatal


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.02)


def run_real(scenario: Coroutine[Any, Any, R]) -> R:
    """Runs a scenario in real time."""
    return asyncio.run(scenario)
