"""What waits for parts that are turned off is not forgotten (M2, M20)."""

from pathlib import Path

from edge.agent.agent import Agent
from tests.unit.edge.agent.agent_harness import submit
from tests.unit.edge.agent.test_agent import MAIL, NOBODY, QUICKLY, ask, complete, device
from tests.unit.edge.agent.test_mesh_agent import SUBMITS, member


def test_what_waits_in_the_outbox_or_the_mesh_is_shown_when_they_are_off(tmp_path: Path) -> None:
    """There and back: what waited first is sent by its part once that is on again."""

    async def run() -> None:
        by_platform, by_mesh = device(tmp_path, NOBODY), member(tmp_path, "a", smtp=SUBMITS)
        for number, found in enumerate((by_platform, by_mesh, by_platform, by_mesh)):
            async with Agent(found, backoff=QUICKLY) as agent:
                status = await ask(found, "status")
                here, left = ("outbox", "mesh") if found is by_platform else ("mesh", "outbox")
                assert status[here]["messages" if here == "outbox" else "waiting_for_keys"] == number // 2
                assert status.get("turned_off", {}).get(left, 0) == (number + 1) // 2
                assert await submit(agent.submission_port, "ann@a.example", ["bob@b.example"], MAIL) == {}

    complete(run())


def test_a_file_that_cannot_be_read_keeps_no_agent_from_starting(tmp_path: Path) -> None:
    """Its part is off: the log says so."""

    async def run() -> None:
        (tmp_path / "mesh").write_bytes(b"no database" * 100)
        found = device(tmp_path, NOBODY)
        async with Agent(found, backoff=QUICKLY):
            assert "turned_off" not in await ask(found, "status")

    complete(run())
