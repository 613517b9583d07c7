"""Whether each part of the gateway works: the answer of `/readyz`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from gateway.kafka_stats import KafkaStats
from gateway.shard.home import Home

FRESH_S = 1.0
"""How long Kafka's answer is reused."""


class Health(NamedTuple):
    """The problem of each part, "" if it has none."""

    faults: dict[str, str]

    @property
    def is_ready(self) -> bool:
        return not any(self.faults.values())


class Readiness:
    """`phase` says what keeps the gateway from serving clients, "" if nothing does; the code that starts the gateway
    sets it.

    `is_consuming`: whether records are being read from Kafka; `find_fault`: asks Kafka, "" if it answers.
    """

    def __init__(
        self,
        egress: str,
        ingress: str,
        home: Home,
        kafka: KafkaStats,
        is_consuming: Callable[[], bool],
        find_fault: Callable[[str], Awaitable[str]],
    ) -> None:
        self.phase = "starting: sessions are being recovered"
        self._egress = egress
        self._ingress = ingress
        self._home = home
        self._kafka = kafka
        self._is_consuming = is_consuming
        self._find_fault = find_fault
        self._lock = asyncio.Lock()
        self._kafka_fault = ""
        self._asked_at = float("-inf")

    async def check(self) -> Health:
        """Checks all parts; asks Kafka at most once a second, however often this is called."""
        kafka = await self._ask_kafka()
        spool = self._home.spool_fault
        return Health({"serving": self.phase, "consuming": self._consuming_fault(), "kafka": kafka, "spool": spool})

    def _consuming_fault(self) -> str:
        if not self._is_consuming():
            return "the consumer does not run"
        drained_to = self._kafka.drained_to
        behind = 0
        for shard in self._home.states:
            position = max(shard.position, drained_to.get((self._egress, shard.number), 0))  # or it is deleted
            behind += max(0, shard.reread_to - position)
        return f"{behind} records from before the start are not read yet" if behind else ""

    async def _ask_kafka(self) -> str:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._asked_at >= FRESH_S:
                self._kafka_fault = await self._find_fault(self._ingress)
                self._asked_at = asyncio.get_running_loop().time()
            return self._kafka_fault
