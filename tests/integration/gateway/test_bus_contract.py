"""KafkaBus on a real broker keeps the contract of the bus."""

import asyncio
from functools import partial

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.kafka_bus import KafkaBus
from gateway.record import Record
from schemas.settings import KafkaSettings
from tests.conftest import LocalBroker
from tests.unit.gateway.bus_contract import BusContract
from tests.unit.gateway.bus_reads_contract import BusReadsContract
from tests.unit.gateway.bus_scenarios import Check


class TestKafkaBus(BusContract, BusReadsContract):
    @pytest.fixture(autouse=True)
    def _on(self, broker: LocalBroker, unique_prefix: str) -> None:
        self._broker, self._topics = broker, broker.topics(unique_prefix)

    async def delete(self, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            await asyncio.wrap_future(deleted)

    def scenario(self, check: Check) -> None:
        async def scenario() -> None:
            fatal: list[Exception] = []
            settings = KafkaSettings(
                bootstrap=self._broker.bootstrap,
                prefix="",
                ingress_partitions=2,
                shards=4,
                retention_days=1,
                password_file="",
                client={},
            )
            bus, received = KafkaBus(settings, asyncio.get_running_loop(), fatal.append, 2), list[Record]()
            bus.start(partial(self.take, received))
            try:
                await check(bus, self._topics, received)
            finally:
                assert await bus.close(10) == 0
            assert not fatal

        asyncio.run(scenario())
