"""Envelopes that no gateway writes, from whoever may write to `ingress`: none ends a home, now or at its next start."""

from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from mqtt.properties import NO_PROPERTIES
from schemas.identity import partition_of
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

HUGE = 10**30
WITHIN_64_BITS = 2**63 - 1


@pytest.mark.parametrize(
    "meta",
    [
        f"1;1;{{}};{HUGE};0;",
        f"1;1;{{}};{-HUGE};0;",
        f"1;1;{{}};{WITHIN_64_BITS};0;",
        f"1;1;{{}};;{HUGE};",
        f"1;1;{{}};;{-HUGE};",
        f"1;2;{{}};;0;{HUGE};1.1",
        f"1;2;{{}};;0;{-HUGE};1.1",
        f"1;2;{{}};;0;7;{HUGE}.1",
        f"1;2;{{}};;0;7;1.{HUGE}",
        f"1;1;{{}};;0;;;{HUGE}.1.1",
        f"1;1;{{}};;0;;;{-HUGE}.1.1",
        f"1;1;{{}};;0;;;1.{HUGE}.{HUGE}",
        "1;1;{};;0;;;1.-5.-5",
    ],
)
@pytest.mark.parametrize("flags", ["", "r"])
def test_a_number_that_cannot_be_stops_nothing(tmp_path: Path, meta: str, flags: str) -> None:
    """Whether its recipients are connected or away, also as a retained message."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        clients = [await harness.client(f"receiver-{n}") for n in range(4)]
        for client in clients:
            await client.subscribe("x")
        await turn(LEAD_S + 5)
        for client in clients[::2]:
            client.lose()
        headers = [("id", b"i"), ("src", b"sender"), ("meta", meta.format(flags).encode()), ("props", NO_PROPERTIES)]
        place = harness.topics.ingress, partition_of("sender", PARTITIONS)
        harness.broker.append(MemoryRecord(place, b"x", b"absurd", headers))
        if flags:
            harness.broker.append(MemoryRecord((harness.topics.retained, 0), b"x", b"absurd", headers))
        await turn(30)
        late = await harness.client("late")
        await late.subscribe("x")
        await turn(10)
        await harness.restart()
        for client in (sender, *clients, late):
            await client.connect()
        sender.publish("x", b"sane", 2)
        await turn(30)
        assert not harness.fatal
        assert all(client.payloads[-1:] == [b"sane"] for client in (*clients, late))

    run(scenario())
