"""A real browser without a window: Debian's Chromium, spoken to by its DevTools protocol."""

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.waiting import wait_for

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND")
ANSWER_S = 60.0


def chromium() -> str:
    """The program; without it the test is left out."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    return found


class Tab:
    """A page: `requests` are the URLs that it asked for, `complaints` what was said on its console."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count()
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._receive()

    def run(self, script: str) -> Any:
        """The value of an expression in JavaScript."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> Any:
        message = json.loads(self._connection.recv(timeout=ANSWER_S))
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(json.dumps(message["params"]))
        return message


@contextmanager
def tab(profile: Path, *more: str) -> Iterator[Tab]:
    """The tab of a browser of its own, which keeps its profile in a directory; `more` options override the others."""
    command = [chromium(), *OPTIONS, *more, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    ready = profile / "DevToolsActivePort"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
        try:
            wait_for(lambda: ready.exists() and "\n" in ready.read_text(), "Chromium listens", ANSWER_S)
            port = ready.read_text().split("\n")[0]
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=ANSWER_S) as answer:
                address = next(one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page")
            with connect(address, max_size=None) as connection:
                yield Tab(connection)
        finally:
            browser.kill()
