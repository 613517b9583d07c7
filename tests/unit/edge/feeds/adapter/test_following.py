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
from edge.feeds.adapter.settings import AdapterSettings
from feeds.synchronise import SynchroniseSettings
from tests.unit.edge.feeds.adapter.adapter_data import ADAPTER, FEED, written_settings

PATIENCE_S = 30


class Output:
    """Takes everything, or `takes` a number of batches and waits for ever then."""

    def __init__(self, takes: int = 1_000) -> None:
        self.offsets: dict[int, int] = {}
        self.batches: list[Sequence[Any]] = []
        self._takes = takes
        self.begins = Event()

    async def open(self) -> None: ...

    async def write(self, slot: Any, batch: Sequence[Any]) -> None:
        self.begins.set()
        if len(self.batches) == self._takes:
            await asyncio.Event().wait()
        self.batches.append(batch)

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


def made(settings: AdapterSettings, checkpoints: Any, log: Output, *others: Output) -> Following:
    return Following(
        settings,
        feed_source(settings.source, settings.limits.streams),
        Administration(FEED, ADAPTER, SynchroniseSettings(), 60.0),
        Counts(),
        cast(CheckpointFile, checkpoints),
        cast(KafkaOutput, log),
        list(others),
        lambda: None,
    )


def test_a_cancellation_while_the_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: it ends, and not before the checkpoint is written: another may be about to write one to the same file."""
    monkeypatch.setattr(following_module, "read_log", lambda *_, **__: (LogFold(ADAPTER, None), {}))
    (tmp_path / "log").write_text("number,value\n1,a\n2,b\n")
    source = 'format="csv"\nname="n"\nfrom="file:log"\nmapping.number="number"'
    settings = written_settings(tmp_path, source, "[state]\nevery_s=0.001")
    checkpoints = SlowCheckpoints()

    async def scenario() -> None:
        following = made(settings, checkpoints, Output())
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


def test_what_the_log_has_of_a_file_is_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2, S3: after a kill it is not read again, so MQTT subscribers would never get what `ingress` lacks."""
    monkeypatch.setattr(following_module, "read_log", lambda *_, **__: (LogFold(ADAPTER, None), {}))
    (tmp_path / "log").write_text("number,value\n1,a\n2,b\n")
    settings = written_settings(tmp_path, 'format="csv"\nname="n"\nfrom="file:log"\nmapping.number="number"')
    checkpoints, log, ingress = SlowCheckpoints(), Output(), Output(takes=0)
    checkpoints.goes_on.set()

    async def scenario() -> None:
        running = asyncio.create_task(made(settings, checkpoints, log, ingress).run())
        assert await asyncio.to_thread(ingress.begins.wait, PATIENCE_S)
        running.cancel()
        await asyncio.wait([running])
        assert not log.batches

    asyncio.run(scenario())


def test_what_a_socket_brings_is_in_the_log_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: numbers continue from the log, so `ingress` must not have one that the log lacks."""
    monkeypatch.setattr(following_module, "read_log", lambda *_, **__: (LogFold(ADAPTER, None), {}))
    log, ingress = Output(takes=0), Output()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"1,a\n2,b\n")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            source = f'format="csv"\nname="n"\nfrom="tcp://127.0.0.1:{port}"\n'
            source += 'mapping.number="number"\ncsv.columns=["number", "value"]'
            settings = written_settings(tmp_path, source)
            running = asyncio.create_task(made(settings, SlowCheckpoints(), log, ingress).run())
            assert await asyncio.to_thread(log.begins.wait, PATIENCE_S)
            running.cancel()
            await asyncio.wait([running])
            assert not ingress.batches

    asyncio.run(scenario())
