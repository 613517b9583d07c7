"""Reports of what the platform has taken are made again until Kafka has them (M9, M12)."""

import asyncio
from collections import Counter

from bundles.bundle import Header, Kind
from gateway.errors import BusError
from gateway.mesh.deliveries import DeliveryReports
from gateway.shard.message_presence import Place
from schemas.events import MessagePresenceEvent
from tests.unit.gateway.shard.virtual_time import run


class UnwillingPresence:
    """Refuses the first events."""

    def __init__(self, refused: int) -> None:
        self.told: list[MessagePresenceEvent] = []
        self._refused = refused

    def begin(self, event: MessagePresenceEvent) -> asyncio.Future[Place]:
        stored: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if self._refused:
            self._refused -= 1
            stored.set_exception(BusError("no"))
        else:
            self.told.append(event)
            stored.set_result(Place(0, 0))
        return stored


def test_a_report_that_kafka_refuses_is_made_again() -> None:
    async def scenario() -> None:
        presence, counts = UnwillingPresence(refused=5), Counter[str]()
        reports = DeliveryReports(presence, lambda: "platform", lambda: 7.0, counts)  # type: ignore[arg-type]
        headers = [Header("agent", 1, n, "a/b", Kind.MESSAGE, 0, 60) for n in range(1, 4)]
        for header in headers:
            reports.delivered(header.message_id, header)
        await asyncio.sleep(30)
        assert sorted(event.id for event in presence.told) == sorted(header.message_id for header in headers)
        assert {(event.event, event.agent, event.peer, event.at_us) for event in presence.told} == {
            ("delivered", "platform", "a/b", 7_000_000)
        }
        assert counts["mesh_reports_refused"] == 5

    run(scenario())
