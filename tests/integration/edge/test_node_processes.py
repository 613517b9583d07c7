"""Three processes on loopback, killed with SIGKILL at drawn moments (M2, M8, M14)."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.draw import generator, times

MESSAGES = 40
ROOT = Path(__file__).parents[3]


class Process:
    """One node; its directory and its port outlive it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.directory = name, directory / name
        self.directory.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *peers: "Process", messages: int = 0) -> None:
        """Returns before it listens."""
        addresses = json.dumps([f"127.0.0.1:{peer.port}" for peer in peers])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        arguments = [self.name, str(self.directory), str(self.port), addresses, str(messages)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.edge.node_process", *arguments], env=environment, stderr=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lines(self, what: str) -> list[str]:
        file = self.directory / f"{what}.txt"
        return file.read_text().splitlines() if file.exists() else []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + 60
        while not condition():
            log = (self.directory / "log").read_text()
            assert time.monotonic() < until, f"{self.name}: not within 60 s: {what}\n{log}"
            assert self.process is None or self.process.poll() is None, log
            time.sleep(0.01)


def test_killed_processes_lose_nothing_and_give_nothing_twice(tmp_path: Path) -> None:
    """M8: a and c know nobody; b goes to them. Each of the three is killed while it is busy."""
    draws = generator("killed nodes")
    a, b, c = (Process(tmp_path, name) for name in "abc")
    try:
        for _ in range(times(1, 10)):
            journey(a, b, c, draws)
    finally:
        for process in (a, b, c):
            process.kill()


def journey(a: Process, b: Process, c: Process, draws: random.Random) -> None:
    before = len(a.lines("accepted"))
    wanted = before + MESSAGES
    a.start(messages=wanted)
    b.start(a)
    a.until(lambda: len(a.lines("accepted")) >= before + draws.randrange(5, 30), "some are accepted")
    a.kill()
    a.start(messages=wanted)
    c.start()
    a.until(lambda: len(a.lines("accepted")) >= wanted, "all are accepted")
    time.sleep(draws.random() / 2)  # b has some, or all, of them
    b.kill()
    b.start(a, c)
    c.until(lambda: len(c.lines("given")) >= before + draws.randrange(0, 30), "some are given")
    c.kill()
    c.start()
    accepted = set(a.lines("accepted"))  # perhaps without one that was accepted when a was killed
    c.until(lambda: accepted <= set(c.lines("given")), "all are given")
    a.until(lambda: accepted <= set(a.lines("told")), "a is told")
    assert len(c.lines("given")) == len(set(c.lines("given"))) <= wanted + len(accepted) // MESSAGES
    for process in (a, b, c):
        process.kill()
