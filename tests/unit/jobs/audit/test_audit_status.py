"""The audit ends with status 1 only if decisions differ: what keeps it from auditing ends it with status 2."""

import sys
from pathlib import Path

import pytest

from jobs.audit import __main__ as audit

pytestmark = pytest.mark.usefixtures("logging_kept")


@pytest.fixture(autouse=True)
def _command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["audit", "--date", "today"])


def test_a_damaged_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "tables" / "messages" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text('{"metaData": {"id"')
    assert audit.main() == 2
    assert "table messages cannot be read" in capfd.readouterr().err


def test_wrong_settings(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WAYSTATION_AUDIT__PATIENCE_S", "soon")
    assert audit.main() == 2
    assert "audit.patience_s" in capfd.readouterr().err


def test_what_nobody_has_foreseen(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("no such thing\nat all")

    monkeypatch.setattr(audit, "run", broken)
    assert audit.main() == 2
    assert "the audit failed: no such thing\n" in capfd.readouterr().err


@pytest.mark.parametrize("status", [0, 1])
def test_what_was_audited(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "run", lambda *_: status)
    assert audit.main() == status
