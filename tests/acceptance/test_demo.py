"""`waystation demo`: the first hours of a day, end to end over a stack of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.query.ledger_reader import LedgerReader
from jobs.stack.state import read_state
from tests import draw

TIMEOUT_S = 420


@pytest.mark.timeout(4 * TIMEOUT_S + 30)
def test_a_short_day_loses_nothing_doubles_nothing_and_completes(tmp_path: Path, java_home: Path, jars: Path) -> None:
    """And then, in two runs of three: `waystation quality` finds nothing wrong with what the day left in the ledger,
    its first half minute included, in which routers do not know all routes yet; or `waystation audit`, which judges
    every message (R3, R7)."""
    figures_file = tmp_path / "figures" / "demo.json"
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(tmp_path / "data"), "demo"]
    options = ["--until", "07:00", "--speed", "3600", "--json", str(figures_file)]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "WAYSTATION_STACK__START_TIMEOUT_S": "300",
        "WAYSTATION_STACK__LEDGER_NICENESS": "0",  # other tests keep a processor busy
        "WAYSTATION_LEDGER__TRIGGER_S": "2.0",
        # How quick it is says something of the machine, and of whatever else that does.
        "WAYSTATION_QUALITY__ROUTING_MS": "60000",
        "WAYSTATION_QUALITY__DELIVERY_MS": "60000",
    }
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr

    figures = json.loads(figures_file.read_text())
    zero = ("lost", "duplicates", "incomplete", "misordered", "stray", "unacknowledged", "unrecorded", "quarantined")
    assert {name: figures[name] for name in zero} == dict.fromkeys(zero, 0)
    assert figures["flights"] > 50
    assert figures["published"] == 3 * figures["flights"] == figures["ledger_rows"]["messages"]
    assert figures["ledger_rows"]["completions"] == figures["published"]
    assert figures["delivered"] > 3 * figures["published"]
    assert figures["delivered_after_absence"] > 0
    assert figures["resumed"] >= figures["flights"]
    assert figures["connections_lost"] == 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert "Journey of message" in done.stdout
    ledger = tmp_path / "data" / "demo"
    assert read_state(ledger) is None, "its stack has been stopped"

    checks = draw.some(("quality", "audit", "nothing"), 1, "checks after a demo")
    if "quality" in checks:
        command = [sys.executable, "-m", "jobs.cli.main", "--data", str(ledger), "quality", "--settle", "0"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
        assert (done.returncode, "all expectations passed" in done.stdout) == (0, True), done.stdout + done.stderr

    if "audit" not in checks:
        return
    dates = messages_by_date(ledger)
    assert sum(dates.values()) > figures["published"], "those of presence are there too"
    for day, messages in dates.items():
        audited = audit_of(ledger, day, environment)
        counts = {name: audited[name] for name in ("messages", "right", "differs", "later")}
        assert counts == {"messages": messages, "right": messages, "differs": 0, "later": 0}


def messages_by_date(ledger: Path) -> dict[str, int]:
    """Of one date, or of two over midnight, UTC."""
    sql = "SELECT date, count(*) FROM messages GROUP BY date ORDER BY date"
    rows = LedgerReader(str(ledger / "tables"), {}).query(sql).rows
    return {str(day): messages for day, messages in rows}


def audit_of(ledger: Path, day: str, environment: dict[str, str]) -> dict[str, Any]:
    """What `waystation audit` says of a date, which differs in nothing."""
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(ledger), "audit", "--date", day, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
