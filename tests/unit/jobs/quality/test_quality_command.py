"""`waystation quality` where there is nothing to judge or it cannot be read: no Spark is started for it."""

import sys
from pathlib import Path

import pytest

from jobs.cli.main import main


def test_a_damaged_table_ends_the_check_with_status_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "tables" / "messages" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text('{"metaData": {"id"')
    monkeypatch.setattr(sys, "argv", ["waystation", "--data", str(tmp_path), "quality"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    err = " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert "table messages cannot be read" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "there are no tables in"),
        (["--date", "2026-02-30"], "is not a date: write 2026-11-22, today or yesterday"),
        (["--settle", "-1"], "Invalid value for '--settle'"),
    ],
)
def test_what_cannot_be_judged_ends_with_status_2(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """1 is kept for a ledger that has been judged, and has faults."""
    monkeypatch.setattr(sys, "argv", ["waystation", "--data", str(tmp_path), "quality", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert sentence in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
