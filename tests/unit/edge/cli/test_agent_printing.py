"""What `waystation agent …` prints is text from strangers (M20)."""

from pathlib import Path
from typing import Any

import pytest

from edge.cli import agent

HOSTILE = "c\\[/d] :battery: [bold]x[/bold] \x1b[2J\u202e\r\nend"
SHOWN = "c\\[/d] :battery: [bold]x[/bold] \\x1b[2J\\u202e\\r\\nend"
STEP = {"at_s": 0.0, "id": "1", "part": "mqtt", "event": "refused", "detail": HOSTILE}


def test_data_is_printed_as_it_is_and_control_characters_are_visible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No markup, no emoji, nothing that moves a terminal's cursor."""
    peer: dict[str, Any] = {
        "name": HOSTILE,
        "address": HOSTILE,
        "state": "waiting",
        "problem": HOSTILE,
        "round_trip_ms": None,
    }
    answers: dict[str, Any] = {
        "log": [STEP],
        "trace": [STEP],
        "peers": [peer],
        "status": {"problem": HOSTILE, "bearers": {HOSTILE: {"last_problem": HOSTILE}}, "mesh": {"problem": HOSTILE}},
    }
    monkeypatch.setattr(agent, "_ask", lambda conf, command, **request: answers[command])
    agent.log(conf=Path("x"))
    agent.trace("1", Path("x"))
    agent.peers(Path("x"))
    agent.status(Path("x"))
    lines = capsys.readouterr().out.split("\n")
    assert lines.pop() == ""
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)
    assert sum(line.count(SHOWN) for line in lines) == 9
