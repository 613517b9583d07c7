"""How the Spark applications begin and end, without Spark: one process a checkpoint, one sentence an error."""

import signal
from pathlib import Path

import pytest

from jobs.errors import JobError
from jobs.ledger import __main__ as ledger
from jobs.router import __main__ as router
from jobs.runtime.application import lock_checkpoints, run_application
from schemas.settings import Settings

pytestmark = pytest.mark.usefixtures("logging_kept")

OTHERWISE = "do something else"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own; this process keeps its signal handlers."""
    monkeypatch.setenv("WAYSTATION_DATA", str(tmp_path))
    monkeypatch.setenv("WAYSTATION_PART", "part-1")
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def test_a_checkpoint_has_one_process(tmp_path: Path) -> None:
    data = str(tmp_path)
    with lock_checkpoints(data, "ledger", OTHERWISE):
        with pytest.raises(JobError, match=f"another process is running ledger in {data}: stop it, or {OTHERWISE}"):
            lock_checkpoints(data, "ledger", OTHERWISE)
        lock_checkpoints(data, "router-active", OTHERWISE).close()
        lock_checkpoints(f"{data}/other", "ledger", OTHERWISE).close()
    lock_checkpoints(data, "ledger", OTHERWISE).close()


@pytest.mark.parametrize("name", ["ledger", "router-active-1", "router-backup-1"])
def test_a_second_one_is_refused_with_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started or changed."""
    for module in (ledger, router):
        monkeypatch.setattr(module, "build_session", lambda *_: pytest.fail("Spark was started"))
    with lock_checkpoints(str(tmp_path), name, OTHERWISE):
        status = ledger.main() if name == "ledger" else router.main(["--role", name.split("-")[1]])
    assert status == 1
    said = capfd.readouterr().err
    assert said.startswith(f"another process is running {name} in {tmp_path}: stop it, or ")
    assert said.count("\n") == 1


def test_an_application_gets_its_settings_and_its_part(tmp_path: Path) -> None:
    seen: list[tuple[str, str, bool]] = []

    def run(settings: Settings, part: str, stopped: object) -> None:
        seen.append((settings.data, part, stopped.is_set()))  # type: ignore[attr-defined]

    assert run_application(run) == 0
    assert seen == [(str(tmp_path), "part-1", False)]


def test_a_wrong_setting_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WAYSTATION_LOG__LEVEL", "loud")
    assert run_application(lambda *_: pytest.fail("it ran")) == 1
    assert 'log.level = "loud" is not allowed' in capfd.readouterr().err
