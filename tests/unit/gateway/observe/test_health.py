"""`/healthz` and `/readyz`."""

import asyncio
from pathlib import Path
from unittest.mock import patch

from gateway.errors import SpoolError
from gateway.observe import http_listener, observer
from gateway.observe.readiness import Readiness
from tests.unit.gateway.observe.observed import HOST, Observed, observed, run_real


def test_alive_while_the_loop_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here, here.http.get(here.url + "/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")

    run_real(scenario())


def test_ready_only_when_every_part_is_and_says_which_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            status, report = await here.get("/readyz")
            assert (status, report["ready"]) == (200, True)
            assert set(report["parts"]) == {"serving", "consuming", "kafka", "spool"}

            here.readiness.phase = "starting"
            assert await _faults(here) == {"serving": "starting"}
            here.readiness.phase = ""

            here.kafka_fault = "Local: Broker transport failure"
            assert await _faults(here) == {"kafka": "Local: Broker transport failure"}
            here.kafka_fault = ""

            here.is_consuming = False
            assert await _faults(here) == {"consuming": "the consumer does not run"}
            here.harness.home.shards[1].spool.outage.failed("write", SpoolError("disk full"))
            assert (await _faults(here))["spool"] == "disk full"
            here.harness.home.shards[1].spool.outage.mended("write")
            here.is_consuming = True

            first = here.harness.home.states[0]
            first.reread_to = 5
            assert await _faults(here) == {"consuming": "5 records from before the start are not read yet"}
            first.position = 5
            assert await _faults(here) == {}

    run_real(scenario())


def test_records_that_kafka_has_deleted_are_not_waited_for(tmp_path: Path) -> None:
    """A shard whose old records are gone by retention gets none of them, and is ready all the same."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.harness.home.states[1].reread_to = 900
            assert await _faults(here)
            here.kafka.take_consumer(
                '{"topics": {"egress": {"partitions": {"1": {"hi_offset": 900, "next_offset": 900, "fetchq_cnt": 3}}}}}'
            )
            assert await _faults(here), "three records are fetched and not handed over"
            here.kafka.take_consumer(
                '{"topics": {"egress": {"partitions": {"1": {"hi_offset": 900, "next_offset": 900, "fetchq_cnt": 0}}}}}'
            )
            assert await _faults(here) == {}

    run_real(scenario())


def test_kafka_is_asked_once_a_second_whoever_asks(tmp_path: Path) -> None:
    """What anybody may ask for must not become a flood of requests to the brokers."""

    async def scenario() -> None:
        asked = 0

        async def find_fault(_topic: str) -> str:
            nonlocal asked
            asked += 1
            return ""

        async with observed(tmp_path) as here:
            home = here.harness.home
        readiness = Readiness("egress", "ingress", home, here.kafka, lambda: True, find_fault)
        for _ in range(50):
            await readiness.check()
        assert asked == 1

    run_real(scenario())


async def _faults(here: Observed) -> dict[str, str]:
    status, report = await here.get("/readyz")
    faults = {part: of["detail"] for part, of in report["parts"].items() if not of["ready"]}
    assert status == (503 if faults else 200)
    assert report["ready"] == (not faults)
    return faults


def test_a_connection_without_a_request_ends_and_those_too_many_at_once(tmp_path: Path) -> None:
    """Whoever holds connections keeps nobody out for long."""

    async def scenario() -> None:
        with patch.object(http_listener, "SILENCE_S", 0.3), patch.object(observer, "CONNECTIONS", 2):
            async with observed(tmp_path) as here:
                port = int(here.url.rpartition(":")[2])
                holding = [await asyncio.open_connection(HOST, port) for _ in range(2)]
                holding[1][1].write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
                one_more, other = await asyncio.open_connection(HOST, port)
                assert await one_more.read() == b""
                for reader, _ in holding:
                    assert await reader.read() == b""
                for path, status in (("/healthz", 200), ("/nothing", 404), ("/admin/nothing", 404)):
                    async with here.http.get(here.url + path) as answer:
                        assert (answer.status, answer.headers["Connection"]) == (status, "close")
                for writer in (other, *(writer for _, writer in holding)):
                    writer.close()

    run_real(scenario())
