"""A router's query is realigned at its moment, without holding up the loop that watches the others."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from jobs.router.__main__ import ROLES, start_order
from jobs.router.query import WATCH_S, Router, until_next_look
from jobs.router.quiet_stop import ABORTS, LONGEST_S, QuietStop
from tests.unit.jobs.router.test_router_order import nobody, settings


class Stops:
    """Who was stopped, and when."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def stop(self, _query: Any, now: float) -> None:
        self.at.append(now)

    def look(self, now: float) -> None: ...


@pytest.fixture
def backup(monkeypatch: pytest.MonkeyPatch) -> Router:
    """Of a pair in one process whose batches last 10 s: the active's began at 100, the backup's at 101."""
    nothing: Any = None
    active, backup = start_order(nothing, settings(), nothing, ROLES, nobody())
    active.phase.began, backup.phase.began = 100.0, 101.0
    backup.phase._batches = 5
    monkeypatch.setattr(backup, "quietly", Stops())
    monkeypatch.setattr(backup, "_start", lambda realigned: SimpleNamespace(realigned=realigned))
    return backup


def test_it_waits_for_its_moment_and_the_loop_for_it(backup: Router) -> None:
    """Half a batch after the active's: at 115."""
    query: Any = SimpleNamespace()
    stops: Any = backup.quietly
    backup._keep_phase(query, 113.0)
    assert backup.realign_at is None, "too early"
    assert until_next_look([backup], 113.0) == WATCH_S
    backup._keep_phase(query, 114.7)
    assert backup.realign_at == pytest.approx(115.0)
    assert until_next_look([backup], 114.7) == pytest.approx(0.3)
    assert stops.at == []
    backup._keep_phase(query, 115.0)
    assert stops.at == [115.0]
    assert backup.query is not None
    assert backup.realign_at is None


def test_one_that_fails_before_its_moment_is_not_realigned(backup: Router) -> None:
    backup._keep_phase(SimpleNamespace(), 114.7)  # type: ignore[arg-type]
    backup._failed(114.8, "lost")
    assert until_next_look([backup], 114.8) == WATCH_S


@pytest.mark.parametrize("error", [OSError("no space"), PySparkException("no space")], ids=["OSError", "Spark"])
def test_one_that_cannot_start_again_is_tried_again(
    backup: Router, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The other query of the process goes on, and routes alone meanwhile."""
    failed: dict[str, str] = {}
    monkeypatch.setattr(backup, "reporter", backup.reporter._replace(failed=failed.__setitem__))
    starts: list[Any] = [error, SimpleNamespace(isActive=True)]

    def start(realigned: bool) -> Any:
        start = starts.pop(0)
        if isinstance(start, Exception):
            raise start
        return start

    monkeypatch.setattr(backup, "_start", start)
    backup._keep_phase(SimpleNamespace(), 114.7)  # type: ignore[arg-type]
    backup._keep_phase(SimpleNamespace(), 115.0)  # type: ignore[arg-type]
    assert (backup.query, list(failed)) == (None, ["router-backup"])
    assert backup.due > 115.0
    backup._try_start(backup.due)
    assert backup.query is not None


class Session:
    """A session with Spark's loggers, and tasks of one stage."""

    def __init__(self) -> None:
        self.levels = dict.fromkeys([*ABORTS, "another"], "ERROR")
        self.tasks = 2
        configurator = SimpleNamespace(setLevel=self.levels.__setitem__)
        log4j = SimpleNamespace(
            core=SimpleNamespace(config=SimpleNamespace(Configurator=configurator)),
            Level=SimpleNamespace(toLevel=lambda level: level),
        )
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(logging=SimpleNamespace(log4j=log4j))))
        tracker = SimpleNamespace(
            getJobIdsForGroup=lambda run: [1],
            getJobInfo=lambda job: SimpleNamespace(stageIds=[1]),
            getStageInfo=lambda stage: SimpleNamespace(numActiveTasks=self.tasks),
        )
        self.sparkContext = SimpleNamespace(statusTracker=lambda: tracker)


def test_loggers_of_aborts_are_silent_until_the_tasks_have_ended() -> None:
    session: Any = Session()
    query: Any = SimpleNamespace(runId="r", stop=lambda: None)
    quietly = QuietStop(session)
    quietly.stop(query, 0.0)
    assert [session.levels[name] for name in ABORTS] == ["OFF"] * 3
    assert session.levels["another"] == "ERROR"
    quietly.look(0.5)
    assert session.levels[ABORTS[0]] == "OFF"
    session.tasks = 0
    quietly.look(1.0)
    assert set(session.levels.values()) == {"ERROR"}


def test_they_are_not_silent_for_ever() -> None:
    session: Any = Session()
    quietly = QuietStop(session)
    quietly.stop(SimpleNamespace(runId="r", stop=lambda: None), 0.0)  # type: ignore[arg-type]
    quietly.look(LONGEST_S)
    assert set(session.levels.values()) == {"ERROR"}
