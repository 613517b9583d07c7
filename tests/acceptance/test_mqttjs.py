"""MQTT.js, the client of browsers and of Node, over WebSocket through the whole platform (G11)."""

from pathlib import Path

import pytest

from tests.acceptance.stack import Stack
from tests.mqttjs import check, mqttjs, needs_node

__all__ = ["mqttjs"]


@needs_node
@pytest.mark.parametrize("version", ["4", "5"], ids=["3.1.1", "5"])
def test_mqttjs(stack: Stack, mqttjs: Path, version: str) -> None:
    """G11: it gets what it sends at each QoS, large messages, a retained one, and what it missed."""
    check(mqttjs, f"ws://127.0.0.1:{stack.websocket_port}/mqtt", version)
