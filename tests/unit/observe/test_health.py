"""`/healthz` and `/readyz`."""

from pathlib import Path

from gateway.observe.readiness import Readiness
from tests.unit.observe.observed import observed, run_real


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
            assert set(report["parts"]) == {"serving", "consuming", "kafka"}

            here.readiness.phase = "starting"
            assert await _faults(here) == {"serving": "starting"}
            here.readiness.phase = ""

            here.kafka_fault = "Local: Broker transport failure"
            assert await _faults(here) == {"kafka": "Local: Broker transport failure"}
            here.kafka_fault = ""

            here.is_consuming = False
            assert await _faults(here) == {"consuming": "nothing is read from Kafka"}
            here.is_consuming = True

            first = here.world.context.shards[0]
            first.replay_to = 5
            assert await _faults(here) == {"consuming": "5 records of before the start are still to be read"}
            first.position = 5
            assert await _faults(here) == {}

    run_real(scenario())


def test_records_that_kafka_has_deleted_are_not_waited_for(tmp_path: Path) -> None:
    """A shard whose old records are gone by retention gets none of them, and is ready all the same."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.world.context.shards[1].replay_to = 900
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
            context = here.world.context
        readiness = Readiness(context, here.kafka, lambda: True, find_fault)
        for _ in range(50):
            await readiness.check()
        assert asked == 1

    run_real(scenario())


async def _faults(here: object) -> dict[str, str]:
    status, report = await here.get("/readyz")  # type: ignore[attr-defined]
    faults = {part: of["detail"] for part, of in report["parts"].items() if not of["ready"]}
    assert status == (503 if faults else 200)
    assert report["ready"] == (not faults)
    return faults
