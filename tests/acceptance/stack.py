"""A whole local stack for acceptance tests, as a user starts it, and clients that count what they send and get."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from jobs.query.ledger_reader import LedgerReader
from jobs.stack.state import StackState, running_state
from tests.paho_client import Paho
from tests.waiting import wait_for

START_TIMEOUT_S = 240
LEDGER_S = 180.0
"""How far the ledger may be behind: it has the lowest priority, and other tests run at the same time."""


class Stack:
    """`waystation up --detach --free-ports` over its own data directory; `down` in the end."""

    def __init__(self, data: Path, overrides: dict[str, str]) -> None:
        self.data = data
        self._environment = os.environ | overrides

    def waystation(
        self, *arguments: str, check: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jobs.cli.main", "--data", str(self.data), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environment, timeout=timeout_s, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def up(self) -> None:
        self.waystation("up", "--detach", "--free-ports")

    def down(self) -> None:
        self.waystation("down", check=False)

    @property
    def state(self) -> StackState:
        return running_state(self.data)

    @property
    def mqtt_port(self) -> int:
        return int(self.state.listeners["mqtt"].rpartition(":")[2])

    @property
    def websocket_port(self) -> int:
        return int(self.state.listeners["websocket"].rpartition(":")[2])

    def kill(self, *names: str) -> None:
        """`kill -9` of the named parts at once, and waits until each has been started again and is ready."""
        before = {p.name: p for p in self.state.processes}
        for name in names:
            os.kill(before[name].pid, signal.SIGKILL)
        for name in names:
            wait_for(lambda name=name: self._is_back(name, before[name].pid), f"{name} is back", START_TIMEOUT_S)

    def _is_back(self, name: str, old_pid: int) -> bool:
        return any(p.name == name and p.pid != old_pid and p.state == "ready" for p in self.state.processes)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of SQL over the ledger as it is now."""
        return [tuple(row) for row in LedgerReader(f"{self.data}/tables").query(sql).rows]


class Client:
    """A paho client with a persistent session that comes back by itself.

    `received` counts payloads, `order` has numbers by sender.
    """

    def __init__(self, stack: Stack, client_id: str, version: int = mqtt.MQTTv5, transport: str = "tcp") -> None:
        self.received: Counter[str] = Counter()
        self.order: dict[str, list[int]] = defaultdict(list)
        self.acknowledged = 0
        self.sent: list[str] = []
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._connected = threading.Event()
        extra = {"clean_session": False} if version == mqtt.MQTTv311 else {}
        self.paho = Paho(
            mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version, transport=transport, **extra
        )
        self.paho.on_message = self._on_message
        self.paho.on_publish = self._on_publish
        self.paho.on_connect = lambda *_: self._connected.set()
        self.paho.on_subscribe = lambda *_: self._answered.set()
        self.paho.reconnect_delay_set(0.2, 1)
        self.paho.max_inflight_messages_set(100)
        self._connect: dict[str, Any] = {}
        if version == mqtt.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            self._connect = {"clean_start": False, "properties": properties}
        self._port = stack.mqtt_port if transport == "tcp" else stack.websocket_port

    def connect(self) -> "Client":
        self._connected.clear()
        self.paho.connect("127.0.0.1", self._port, **self._connect)
        self.paho.loop_start()
        assert self._connected.wait(30), "no CONNACK"
        return self

    def disconnect(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self._answered.clear()
        self.paho.subscribe(topic_filter, qos=qos)
        assert self._answered.wait(30), "no SUBACK"

    def publish(self, topic: str, qos: int) -> None:
        """One message: `<client> <number>`."""
        payload = f"{self.paho._client_id.decode()} {len(self.sent)}"
        self.sent.append(payload)
        self.paho.publish(topic, payload, qos=qos)

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged >= len(self.sent)

    def _on_message(self, _client: object, _userdata: object, message: mqtt.MQTTMessage) -> None:
        payload = message.payload.decode()
        sender, _, number = payload.partition(" ")
        with self._lock:
            self.received[payload] += 1
            self.order[sender].append(int(number))

    def _on_publish(self, *_: object) -> None:
        self.acknowledged += 1


class Load:
    """Publishes from a thread at a rate until stopped."""

    def __init__(self, publish: Callable[[int], None], rate: float) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(publish, rate))

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, publish: Callable[[int], None], rate: float) -> None:
        began, number = time.monotonic(), 0
        while not self._stopped.wait(max(0.0, began + number / rate - time.monotonic())):
            publish(number)
            number += 1
