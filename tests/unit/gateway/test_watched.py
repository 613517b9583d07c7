"""Files that are read again when they change (R11)."""

import asyncio
import os
from pathlib import Path

import pytest

from gateway.watched import Watched, Watcher, read_text
from schemas.errors import SettingsError
from tests.unit.gateway.shard.virtual_time import run


def replace(path: Path, text: str) -> None:
    """As editors and secret stores do it: another file under the same name."""
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def test_a_change_is_taken_and_a_broken_one_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    taken: list[int] = []

    def read() -> int:
        try:
            return int(read_text(str(path), "the.setting"))
        except ValueError as error:
            raise SettingsError(f"{path} is no number") from error

    async def scenario() -> None:
        path.write_text("1")
        watched = Watched([str(path)], read, taken.append)
        await watched.refresh()
        assert (watched.current, taken) == (1, [])
        replace(path, "2")
        await watched.refresh()
        assert (watched.current, taken) == (2, [2])
        replace(path, "broken")
        await watched.refresh()
        path.unlink()
        await watched.refresh()
        assert (watched.current, taken) == (2, [2])
        path.write_text("3")
        await watched.refresh()
        await watched.refresh()
        assert (watched.current, taken) == (3, [2, 3])
        await watched.refresh(anyway=True)
        assert taken == [2, 3, 3]

    asyncio.run(scenario())


def test_a_file_that_is_not_there_at_the_start_is_an_error_that_names_it_and_its_setting(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match=r"cannot read .*nowhere \(the\.setting\): No such file"):
        Watched([path], lambda: read_text(path, "the.setting"))


def test_the_watcher_looks_once_a_second_and_at_once_when_told() -> None:
    looks: list[tuple[float, bool]] = []

    class Counting(Watched[int]):
        async def refresh(self, *, anyway: bool = False) -> None:
            looks.append((asyncio.get_running_loop().time(), anyway))

    async def scenario() -> None:
        watcher = Watcher([Counting([], lambda: 0)])
        await asyncio.sleep(2.5)
        watcher.reload()
        await asyncio.sleep(1.2)
        await watcher.stop()
        await asyncio.sleep(5)
        assert looks == [(1, False), (2, False), (2.5, True), (3.5, False)]

    run(scenario())


@pytest.mark.parametrize("turns", range(6))
def test_it_may_be_stopped_just_after_it_was_told_to_look(turns: int) -> None:
    """SIGHUP and SIGTERM one after the other."""

    class Quiet(Watched[int]):
        async def refresh(self, *, anyway: bool = False) -> None:
            await asyncio.sleep(0)

    async def scenario() -> None:
        watcher = Watcher([Quiet([], lambda: 0)])
        await asyncio.sleep(0.5)
        watcher.reload()
        for _ in range(turns):
            await asyncio.sleep(0)
        stopped = asyncio.create_task(watcher.stop())
        await asyncio.wait([stopped], timeout=100)
        assert stopped.done()

    run(scenario())
