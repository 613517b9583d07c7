"""One time that an adapter follows its source: how it ends (S2)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from edge.feeds.adapter import following as following_module
from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.checkpoint_file import CheckpointFile
from edge.feeds.adapter.composer import Counts
from edge.feeds.adapter.following import Following
from edge.feeds.adapter.kafka_output import KafkaOutput
from edge.feeds.adapter.own_source import feed_source
from edge.feeds.adapter.resume import Checkpoint, LogFold
from feeds.synchronise import SynchroniseSettings
from tests.unit.edge.feeds.adapter.adapter_data import ADAPTER, FEED, written_settings

PATIENCE_S = 30


class Output:
    """Takes everything."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}

    async def open(self) -> None: ...

    async def write(self, slot: Any, batch: Sequence[Any]) -> None: ...

    async def close(self) -> None: ...


class SlowCheckpoints:
    """`begins` is set when a checkpoint is being written; `goes_on` lets that end."""

    def __init__(self) -> None:
        self.begins, self.goes_on = Event(), Event()
        self.written: list[Checkpoint] = []

    def read(self) -> None: ...

    def write(self, checkpoint: Checkpoint) -> None:
        self.begins.set()
        assert self.goes_on.wait(PATIENCE_S)
        self.written.append(checkpoint)


def test_a_cancellation_while_the_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: it ends, and not before the checkpoint is written: another may be about to write one to the same file."""
    monkeypatch.setattr(following_module, "read_log", lambda *_, **__: (LogFold(ADAPTER, None), {}))
    (tmp_path / "log").write_text("number,value\n1,a\n2,b\n")
    source = 'format="csv"\nname="n"\nfrom="file:log"\nmapping.number="number"'
    settings = written_settings(tmp_path, source, "[state]\nevery_s=0.001")
    checkpoints = SlowCheckpoints()

    async def scenario() -> None:
        following = Following(
            settings,
            feed_source(settings.source, settings.limits.streams),
            Administration(FEED, ADAPTER, SynchroniseSettings(), 60.0),
            Counts(),
            cast(CheckpointFile, checkpoints),
            cast(KafkaOutput, Output()),
            [],
            lambda: None,
        )
        running = asyncio.create_task(following.run())
        assert await asyncio.to_thread(checkpoints.begins.wait, PATIENCE_S)
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=0)
        assert not done
        checkpoints.goes_on.set()
        done, _ = await asyncio.wait([running], timeout=PATIENCE_S)
        assert done, "it has not ended"
        assert running.cancelled()
        assert len(checkpoints.written) == 1

    asyncio.run(scenario())
