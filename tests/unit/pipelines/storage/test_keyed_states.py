"""The states of a fold survive every crash between two of its steps, and the loss of their file (R12, M9)."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import KEYS_A_QUERY

NOBODY: Any = None
KEPT_S = 100


class KeyedStatesHarness:
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
def harness(tmp_path: Path) -> KeyedStatesHarness:
    return KeyedStatesHarness(tmp_path)


def test_batches_build_on_each_other(harness: KeyedStatesHarness) -> None:
    harness.batch(0, "a", "b", "a")
    harness.batch(1, "a")
    harness.states = harness.begun()
    harness.batch(2, "b")
    assert harness.published == {"a": b"3", "b": b"2"}
    assert harness.rebuilt == 1, "only when there was nothing"


@pytest.mark.parametrize("step", ["folded", "published"])
def test_killed_before_it_is_finished_a_batch_is_folded_again_to_the_same(
    harness: KeyedStatesHarness, step: str
) -> None:
    harness.batch(0, "a")
    harness.batch(1, "a", "b", until=step)
    harness.states = harness.begun()
    assert harness.batch(1, "a", "b")
    assert harness.published == {"a": b"2", "b": b"1"}


def test_a_batch_that_is_finished_is_not_folded_again(harness: KeyedStatesHarness) -> None:
    harness.batch(0, "a")
    harness.states = harness.begun()
    assert not harness.batch(0, "a")
    assert harness.published == {"a": b"1"}


@pytest.mark.parametrize("lost", ["nothing", "cut", "noise", "gone"])
def test_without_its_file_it_begins_with_what_was_told(harness: KeyedStatesHarness, lost: str) -> None:
    """Another machine has none; a disk may give back anything."""
    harness.batch(0, *(f"k{n}" for n in range(2000)))
    del harness.states
    content = harness.file.read_bytes()
    if lost == "gone":
        shutil.rmtree(harness.file.parent)
    elif lost == "cut":
        harness.file.write_bytes(content[: len(content) // 2])
    elif lost == "noise":
        harness.file.write_bytes(b"no database" * 1000)
    harness.states = harness.begun()
    harness.batch(1, "k1")
    assert harness.rebuilt == (1 if lost == "nothing" else 2)
    assert harness.known("k1", "k7") == {"k1": b"2", "k7": b"1"}


@pytest.mark.parametrize(("query", "number"), [("another", 1), ("q", 2), ("q", 0)])
def test_states_of_another_batch_are_not_built_upon(harness: KeyedStatesHarness, query: str, number: int) -> None:
    """A new checkpoint, a file that a power cut left behind, a checkpoint that was put back."""
    harness.batch(0, "a")
    if number == 0:
        harness.batch(1, "a")
    harness.published["a"] = b"10"
    harness.batch(number, "a", query=query)
    assert harness.published == {"a": b"11"}


def test_keys_of_which_nothing_is_heard_are_forgotten(harness: KeyedStatesHarness) -> None:
    harness.batch(0, "a", at_ms=1000)
    harness.batch(1, "b", at_ms=1000 + KEPT_S * 1000)
    assert harness.known("a", "b") == {"a": b"1", "b": b"1"}
    harness.batch(2, "b", at_ms=1001 + KEPT_S * 1000)
    assert harness.known("a", "b") == {"b": b"2"}


def test_keys_are_told_apart_byte_by_byte(harness: KeyedStatesHarness) -> None:
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
    harness.batch(0, *names)
    harness.batch(1, *names[:10])
    assert set(map(harness.published.get, names[:10])) == {b"2"}
    assert harness.published["77"] == b"1"


def test_a_key_that_is_over_is_forgotten_at_once(harness: KeyedStatesHarness) -> None:
    harness.batch(0, "a", "b")
    assert harness.states.begin(NOBODY, "q", 1)
    harness.states.finish("q", 1, {"a": None, "b": b"2"}, 0)
    assert harness.known("a", "b") == {"b": b"2"}


class Lasting(KeyedStatesHarness):
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
    harness, day = Lasting(tmp_path), 86_400_000
    kept = KEPT_S * 1000
    harness.until_ms = {"live": 30 * day}
    harness.step(0, 0, "live", "over")
    for number in range(1, 30):
        harness.step(number, number * day, "other")
    assert harness.known("live", "over") == {"live": b"1"}
    assert harness.ended == ["over"], "once"
    harness.step(30, 30 * day + kept, "other")
    assert harness.known("live") == {"live": b"1"}, "kept for as long after its last use as after a last word"
    harness.step(31, 30 * day + kept + 1, "other")
    assert (harness.known("live"), harness.ended) == ({}, ["over", "live"])
    assert set(harness.published) == {"other"}, "what a compacted topic keeps does not grow"


def batch_of(*rows: Row) -> Any:
    """As Spark gives it to a query."""
    context = SimpleNamespace(getLocalProperty=lambda _name: "q")
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context), collect=lambda: list(rows))


def test_a_record_of_a_clock_that_is_ahead_ends_nothing(harness: KeyedStatesHarness) -> None:
    """R12, M9: of several brokers one may be wrong; keys are ended once the time has come by all records of a batch."""
    ended: list[str] = []
    late, far = KEPT_S * 1000 + 1, 1000 * KEPT_S * 1000

    def take(number: int, *rows: Row) -> None:
        harness.states.take(batch_of(*rows), number, "name", count, lambda *_: None, ended.extend)

    take(0, Row(name="a", appended_ms=0))
    take(1, Row(name="b", appended_ms=far), Row(name="c", appended_ms=2))
    assert ended == []
    take(2, Row(name="c", appended_ms=late))
    assert ended == ["a"]


def test_a_key_is_ended_before_it_is_forgotten(tmp_path: Path) -> None:
    """R12, M9: killed in between, it is ended again; heard of in the same batch, it is not ended."""
    harness = Lasting(tmp_path)
    harness.step(0, 0, "a", "b")
    late = KEPT_S * 1000 + 1
    harness.step(1, late, "b", is_killed=True)
    harness.states = harness.begun()
    harness.published["a"] = b"1"
    harness.step(1, late, "b")
    assert harness.ended == ["a", "a"]
    assert harness.known("a", "b") == {"b": b"2"}


def test_many_are_forgotten_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch after a long pause is not longer than others; nothing is passed over."""
    monkeypatch.setattr("pipelines.storage.keyed_states.FORGOTTEN_A_BATCH", 7)
    harness = Lasting(tmp_path)
    harness.step(0, 0, *(f"k{n}" for n in range(20)))
    for number in range(1, 4):
        harness.step(number, KEPT_S * 1000 + number, "other")
        assert len(harness.ended) == min(20, 7 * number)
    assert set(harness.known("other", *(f"k{n}" for n in range(20)))) == {"other"}


def test_what_a_batch_has_decided_is_known_until_it_is_finished(harness: KeyedStatesHarness) -> None:
    harness.batch(0, "a")
    harness.batch(1, "a", until="folded")
    assert harness.states.decided("q/1") is None
    harness.states.decide("q/1", b"first")
    harness.states = harness.begun()
    assert harness.states.decided("q/1") == b"first", "by the process that repeats it"
    assert harness.states.decided("q/2") is None
    harness.batch(1, "a")
    assert harness.states.decided("q/1") is None
