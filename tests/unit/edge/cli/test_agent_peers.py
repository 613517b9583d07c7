"""What `waystation agent peers` prints (M3, M5, M20)."""

from pathlib import Path

import msgspec
import pytest

from edge.cli import agent
from edge.node.contacts import PeerStatus

PEERS = [
    PeerStatus("b", "10.0.0.2:4660", "connected", True, True, 4_000.4, round_trip_ms=12.34),
    PeerStatus(
        "c", "10.0.0.3:4660", "unreachable", connected_s=60.0, problem="the round trip takes 3.0 s", round_trip_ms=3e3
    ),
    PeerStatus("", "10.0.0.4:4660", "waiting", problem="connection refused"),
]


def test_each_peer_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(agent, "_ask", lambda conf, command: msgspec.to_builtins(PEERS))
    agent.peers(Path("agent.toml"))
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "b 10.0.0.2:4660 connected for 4,000 s, gateway in reach, round trip 12.3 ms",
        "c 10.0.0.3:4660 unreachable for 60 s, the round trip takes 3.0 s, round trip 3,000.0 ms",
        "- 10.0.0.4:4660 waiting connection refused",
    ]
