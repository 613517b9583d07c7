"""The states of a fold survive every crash between two of its steps, and the loss of their file (R12, M9)."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import KEYS_A_QUERY

NOBODY: Any = None
KEPT_S = 100


class World:
    """A fold that counts rows, and tells each new count."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "states" / "counts.sqlite"
        self.published: dict[str, bytes] = {}
        self.rebuilt = 0
        self.states = self.begun()

    def begun(self) -> KeyedStates:
        return KeyedStates(self.file, KEPT_S, self._all_published)

    def _all_published(self, _spark: object) -> Iterable[tuple[str, bytes, int]]:
        self.rebuilt += 1
        return [(key, state, 0) for key, state in self.published.items()]

    def batch(self, number: int, *names: str, query: str = "q", until: str = "finished", at_ms: int = 0) -> bool:
        """Whether there was something to do; `until`: the step after which the process is killed."""
        if not self.states.begin(NOBODY, query, number):
            return False
        states, given = self.states.folded((Row(name=name) for name in names), "name", count)
        if until == "folded":
            return True
        self.published |= dict(given)
        if until == "published":
            return True
        self.states.finish(query, number, states, at_ms)
        return True

    def known(self, *names: str) -> dict[str, bytes]:
        states, _ = self.states.folded((Row(name=name) for name in names), "name", lambda old, _, __: (old, ()))
        return states


def count(state: bytes | None, key: str, rows: list[Row]) -> tuple[bytes, list[tuple[str, bytes]]]:
    new = b"%d" % (int(state or 0) + len(rows))
    return new, [(key, new)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_batches_build_on_each_other(world: World) -> None:
    world.batch(0, "a", "b", "a")
    world.batch(1, "a")
    world.states = world.begun()
    world.batch(2, "b")
    assert world.published == {"a": b"3", "b": b"2"}
    assert world.rebuilt == 1, "only when there was nothing"


@pytest.mark.parametrize("step", ["folded", "published"])
def test_killed_before_it_is_finished_a_batch_is_folded_again_to_the_same(world: World, step: str) -> None:
    world.batch(0, "a")
    world.batch(1, "a", "b", until=step)
    world.states = world.begun()
    assert world.batch(1, "a", "b")
    assert world.published == {"a": b"2", "b": b"1"}


def test_a_batch_that_is_finished_is_not_folded_again(world: World) -> None:
    world.batch(0, "a")
    world.states = world.begun()
    assert not world.batch(0, "a")
    assert world.published == {"a": b"1"}


@pytest.mark.parametrize("lost", ["nothing", "cut", "noise", "gone"])
def test_without_its_file_it_begins_with_what_was_told(world: World, lost: str) -> None:
    """Another machine has none; a disk may give back anything."""
    world.batch(0, *(f"k{n}" for n in range(2000)))
    del world.states
    content = world.file.read_bytes()
    if lost == "gone":
        shutil.rmtree(world.file.parent)
    elif lost == "cut":
        world.file.write_bytes(content[: len(content) // 2])
    elif lost == "noise":
        world.file.write_bytes(b"no database" * 1000)
    world.states = world.begun()
    world.batch(1, "k1")
    assert world.rebuilt == (1 if lost == "nothing" else 2)
    assert world.known("k1", "k7") == {"k1": b"2", "k7": b"1"}


@pytest.mark.parametrize(("query", "number"), [("another", 1), ("q", 2), ("q", 0)])
def test_states_of_another_batch_are_not_built_upon(world: World, query: str, number: int) -> None:
    """A new checkpoint, a file that a power cut left behind, a checkpoint that was put back."""
    world.batch(0, "a")
    if number == 0:
        world.batch(1, "a")
    world.published["a"] = b"10"
    world.batch(number, "a", query=query)
    assert world.published == {"a": b"11"}


def test_keys_of_which_nothing_is_heard_are_forgotten(world: World) -> None:
    world.batch(0, "a", at_ms=1000)
    world.batch(1, "b", at_ms=1000 + KEPT_S * 1000)
    assert world.known("a", "b") == {"a": b"1", "b": b"1"}
    world.batch(2, "b", at_ms=1001 + KEPT_S * 1000)
    assert world.known("a", "b") == {"b": b"2"}


def test_keys_are_told_apart_byte_by_byte(world: World) -> None:
    names = [
        "",
        "a",
        "A",
        "a\0b",
        "a\0",
        "é",
        "e\u0301",
        "1",
        "01",
        "\U0001f600",
        *map(str, range(50, 2 * KEYS_A_QUERY)),
    ]
    world.batch(0, *names)
    world.batch(1, *names[:10])
    assert set(map(world.published.get, names[:10])) == {b"2"}
    assert world.published["77"] == b"1"


def test_a_key_that_is_over_is_forgotten_at_once(world: World) -> None:
    world.batch(0, "a", "b")
    assert world.states.begin(NOBODY, "q", 1)
    world.states.finish("q", 1, {"a": None, "b": b"2"}, 0)
    assert world.known("a", "b") == {"b": b"2"}


class Lasting(World):
    """States that say until when they are of use, which is published, and ended, as a query does it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ended: list[str] = []
        self.until_ms: dict[str, int] = {}

    def step(self, number: int, at_ms: int, *names: str, is_killed: bool = False) -> None:
        """A batch; `is_killed`: before the file has it."""
        assert self.states.begin(NOBODY, "q", number)
        states, given = self.states.folded((Row(name=name) for name in names), "name", count)
        self.published |= dict(given)
        over, lasting = self.states.unused(at_ms, states, lambda key, _, now: min(now, self.until_ms.get(key, 0)))
        self.ended += over
        for key in over:
            del self.published[key]
        if not is_killed:
            self.states.finish("q", number, {**states, **dict.fromkeys(over)}, at_ms, lasting)


def test_what_lasts_is_not_forgotten_however_long_nothing_is_heard(tmp_path: Path) -> None:
    """R12: a client that has been connected for weeks says nothing and is there; ended once, long after its use."""
    world, day = Lasting(tmp_path), 86_400_000
    kept = KEPT_S * 1000
    world.until_ms = {"live": 30 * day}
    world.step(0, 0, "live", "over")
    for number in range(1, 30):
        world.step(number, number * day, "other")
    assert world.known("live", "over") == {"live": b"1"}
    assert world.ended == ["over"], "once"
    world.step(30, 30 * day + kept, "other")
    assert world.known("live") == {"live": b"1"}, "kept for as long after its last use as after a last word"
    world.step(31, 30 * day + kept + 1, "other")
    assert (world.known("live"), world.ended) == ({}, ["over", "live"])
    assert set(world.published) == {"other"}, "what a compacted topic keeps does not grow"


def test_a_key_is_ended_before_it_is_forgotten(tmp_path: Path) -> None:
    """R12, M9: killed in between, it is ended again; heard of in the same batch, it is not ended."""
    world = Lasting(tmp_path)
    world.step(0, 0, "a", "b")
    late = KEPT_S * 1000 + 1
    world.step(1, late, "b", is_killed=True)
    world.states = world.begun()
    world.published["a"] = b"1"
    world.step(1, late, "b")
    assert world.ended == ["a", "a"]
    assert world.known("a", "b") == {"b": b"2"}


def test_many_are_forgotten_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch after a long pause is not longer than others; nothing is passed over."""
    monkeypatch.setattr("pipelines.storage.keyed_states.FORGOTTEN_A_BATCH", 7)
    world = Lasting(tmp_path)
    world.step(0, 0, *(f"k{n}" for n in range(20)))
    for number in range(1, 4):
        world.step(number, KEPT_S * 1000 + number, "other")
        assert len(world.ended) == min(20, 7 * number)
    assert set(world.known("other", *(f"k{n}" for n in range(20)))) == {"other"}
