"""The processes of the feeds' demo: the sequencer, and an adapter on each way, which can be killed and started again.

feeds/stack.toml             an overlay for the stack: the feed's name
feeds/numbered.jsonl         the recording, numbered by `waystation feed sequence`
feeds/<slot>/way.jsonl       what this way has brought so far
feeds/<slot>/adapter.toml    the adapter's settings, as for `waystation feed adapter`
feeds/<slot>/state/          its checkpoint
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from feeds.message import FEEDS, Feed
from feeds.registry_records import SLOTS
from jobs.demo.children import wait_or_kill
from jobs.demo.errors import DemoError
from jobs.demo.feed_plan import SOURCE

DIRECTORY: Final = "feeds"
FEED: Final = "flight"
TIMEOUT_S: Final = 1.0
"""Without a beat for so long an adapter is dead. Longer than the default: all processes are on one machine."""
SEQUENCE_S: Final = 60.0
STOP_S: Final = 15.0
_TAIL: Final = 2_000
_COMMAND: Final = (sys.executable, "-m", "edge.cli.main", "feed")

_STACK: Final = f"""\
# The stack of the feeds' demo.
[feeds]
names = ["{FEED}"]
timeout_s = {TIMEOUT_S}
"""
# Two machines and zones, as they would be: the administration advises against a pair on one.
_ADAPTER: Final = """\
[feed]
name = "{feed}"
slot = "{slot}"
adapter = "{feed}-{slot}"
machine = "demo-{slot}"
zone = "zone-{slot}"
timeout_s = {timeout_s}

[source]
format = "mode-s"
name = "{source}"
from = "file:way.jsonl"
sequencer = "demo"
follow = true

[kafka]
bootstrap = "{bootstrap}"
prefix = "{prefix}"
reconnect_most_s = 1.0

[state]
directory = "state"
"""


class FeedFiles:
    """In the demo's directory `data`."""

    def __init__(self, data: Path) -> None:
        self._data = data / DIRECTORY

    @property
    def overlay(self) -> Path:
        """For the stack."""
        return self._data / "stack.toml"

    @property
    def continuity(self) -> Path:
        """The subscriber's state."""
        return self._data / "subscriber.state"

    def directory(self, feed: Feed) -> Path:
        """Of an adapter."""
        return self._data / SLOTS[feed]

    def way(self, feed: Feed) -> Path:
        """What a way has brought."""
        return self.directory(feed) / "way.jsonl"

    def make(self) -> None:
        """What the stack needs, and empty ways."""
        for feed in FEEDS:
            self.directory(feed).mkdir(parents=True, exist_ok=True)
            self.way(feed).touch()
        self.overlay.write_text(_STACK, encoding="utf-8")

    def number(self, recording: Path, epoch: int, environ: Mapping[str, str]) -> list[bytes]:
        """The recording's lines, numbered by `waystation feed sequence`. Raises DemoError."""
        numbered = self._data / "numbered.jsonl"
        with numbered.open("wb") as output:
            done = subprocess.run(
                [*_COMMAND, "sequence", "--epoch", str(epoch), str(recording)],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=SEQUENCE_S,
            )
        if done.returncode:
            raise DemoError(f"the sequencer has failed: {done.stderr.decode(errors='replace').strip()[-_TAIL:]}")
        return numbered.read_bytes().splitlines()

    def configure(self, bootstrap: str, prefix: str) -> None:
        """Writes the adapters' settings."""
        for feed in FEEDS:
            text = _ADAPTER.format(
                feed=FEED,
                slot=SLOTS[feed],
                timeout_s=TIMEOUT_S,
                source=SOURCE,
                bootstrap=bootstrap,
                prefix=prefix,
            )
            (self.directory(feed) / "adapter.toml").write_text(text, encoding="utf-8")


@contextmanager
def adapters_running(files: FeedFiles, logs: Path, environ: Mapping[str, str]) -> Iterator["Adapters"]:
    """Both adapters, started. They are stopped at the end, whatever happens."""
    logs.mkdir(parents=True, exist_ok=True)
    adapters = Adapters(files, logs, environ)
    try:
        for feed in FEEDS:
            adapters.start(feed)
        yield adapters
    finally:
        adapters.stop()


class Adapters:
    """`waystation feed adapter` on each way; `logs`: the directory of their logs."""

    def __init__(self, files: FeedFiles, logs: Path, environ: Mapping[str, str]) -> None:
        self._files, self._logs, self._environ = files, logs, environ
        self._children: dict[Feed, subprocess.Popen[bytes]] = {}
        self.kills = 0

    @property
    def running(self) -> int:
        """How many there are now."""
        return len(self._children)

    def start(self, feed: Feed) -> None:
        """One process, in a group of its own: Ctrl-C is for the demo, which then stops it."""
        with self._log(feed).open("ab") as log:
            self._children[feed] = subprocess.Popen(
                [*_COMMAND, "adapter", "--config", str(self._files.directory(feed) / "adapter.toml")],
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def kill(self, feed: Feed) -> None:
        """kill -9."""
        child = self._children.pop(feed)
        child.kill()
        child.wait()
        self.kills += 1

    def check(self) -> None:
        """Raises DemoError if an adapter has ended by itself."""
        for feed, child in self._children.items():
            if child.poll() is not None:
                tail = self._log(feed).read_text(encoding="utf-8", errors="replace").strip()[-_TAIL:]
                raise DemoError(f"the adapter {SLOTS[feed]} has ended, see {self._log(feed)}: {tail}")

    def stop(self) -> None:
        """Ends them in order, or by force."""
        for child in self._children.values():
            child.terminate()
        wait_or_kill(self._children.values(), STOP_S)
        self._children.clear()

    def _log(self, feed: Feed) -> Path:
        return self._logs / f"adapter-{SLOTS[feed]}.log"
