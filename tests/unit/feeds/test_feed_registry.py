"""The fold over the topic `feeds`: who holds a slot, who is alive, which stream is preferred (S1)."""

import pytest

from feeds.errors import FeedRecordError
from feeds.pairing import FeedSource, Paired, Refused, SourceFormat
from feeds.registry import Registry
from feeds.registry_records import AdapterBeat, Assignment, RegistryKey, decode
from schemas.errors import RecordError
from schemas.events import encode
from schemas.feed_words import Slot

SEQUENCED = FeedSource(format=SourceFormat.MODE_S, name="radar", sequencer="tower")
TIMEOUT_S = 0.6


def beat(slot: Slot, boot: int, seq: int = 0, source: FeedSource = SEQUENCED, **other: object) -> AdapterBeat:
    fields = {"state": "up", "at_us": 0, "machine": "m", **other}
    return AdapterBeat(slot=slot, boot=boot, seq=seq, source=source, **fields)  # type: ignore[arg-type]


def new_registry() -> Registry:
    return Registry(TIMEOUT_S, adapters=3, subscribers=3)


def test_the_earlier_adapter_holds_a_slot_until_it_falls_silent() -> None:
    registry = new_registry()
    registry.apply(RegistryKey("adapter", "f", "late"), beat("active", boot=2), 10.0)
    registry.apply(RegistryKey("adapter", "f", "early"), beat("active", boot=1), 10.0)
    assert _holder(registry, "active", 10.1) == "early"
    registry.apply(RegistryKey("adapter", "f", "late"), beat("active", boot=2, seq=1), 10.5)
    assert _holder(registry, "active", 10.0 + TIMEOUT_S + 0.01) == "late"
    assert _holder(registry, "backup", 10.1) is None


@pytest.mark.parametrize(("clock_us", "boot"), [(6, 8), (7, 7), (9, 9)])
def test_an_adapter_that_starts_again_is_newer_whatever_its_clock_says(clock_us: int, boot: int) -> None:
    """S1: otherwise all others would take what it says for old. Its own first beats are no earlier process."""
    registry = new_registry()
    assert registry.boot_after("f", "a", clock_us) == clock_us
    registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=7, seq=900), None)
    registry.apply(RegistryKey("adapter", "f", "other"), beat("active", boot=99), None)
    assert registry.boot_after("f", "a", clock_us) == boot


def test_what_was_on_the_topic_before_proves_no_life() -> None:
    registry = new_registry()
    registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=1), None)
    assert _holder(registry, "active", 0.0) is None
    registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=1), 5.0)  # a copy is no progress
    assert _holder(registry, "active", 5.0) is None
    registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=1, seq=1), 5.0)
    assert _holder(registry, "active", 5.0) == "a"


def test_only_adapters_that_write_hold_a_slot() -> None:
    registry = new_registry()
    for seq, state in enumerate(("waiting", "refused", "gone")):
        registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=1, seq=seq, state=state), 1.0)
        assert _holder(registry, "active", 1.0) is None


def test_a_pair_needs_common_numbers() -> None:
    registry = new_registry()
    assert registry.pair("f", 0.0) is None
    registry.apply(RegistryKey("adapter", "f", "a"), beat("active", boot=1), 0.0)
    registry.apply(RegistryKey("adapter", "f", "b"), beat("backup", boot=1), 0.0)
    assert isinstance(registry.pair("f", 0.0), Paired)
    unnumbered = FeedSource(format=SourceFormat.MODE_S, name="radar")
    for name, slot in (("a", "active"), ("b", "backup")):
        registry.apply(RegistryKey("adapter", "f", name), beat(slot, boot=2, source=unnumbered), 0.0)  # type: ignore[arg-type]
    assert isinstance(registry.pair("f", 0.0), Refused)


def test_the_highest_revision_is_the_assignment() -> None:
    registry = new_registry()
    assert registry.preferred("f") == "active"
    key = RegistryKey("assignment", "f")
    for revision, slot in ((2, "backup"), (1, "active")):
        registry.apply(key, Assignment(active=slot, revision=revision, reason="", by="x", at_us=0), None)  # type: ignore[arg-type]
    assert registry.preferred("f") == "backup"


def test_adapters_are_bounded() -> None:
    registry = new_registry()
    displaced = [
        registry.apply(RegistryKey("adapter", "f", str(number)), beat("active", boot=1), number) for number in range(5)
    ]
    assert displaced == [0, 0, 0, 1, 1]
    assert [one.name for one in registry.adapters("f")] == ["2", "3", "4"]


def test_records_are_read_as_written() -> None:
    record, key = beat("backup", boot=7, reason="none"), RegistryKey("adapter", "f", "a b")
    assert decode(key.encode(), encode(record)) == (key, record)
    assert decode(key.encode(), None) == (key, None)


@pytest.mark.parametrize("key", [None, b"", b"adapter/f", b"assignment/f/x", b"other/f/x", b"adapter/../x/y", b"\xff"])
def test_other_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(FeedRecordError):
        decode(key, b"{}")


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b"{" * 300_000, b'{"x":' + b"[" * 200_000])
def test_malformed_records_are_refused(value: bytes) -> None:
    with pytest.raises(RecordError):
        decode(b"adapter/f/a", value)


def _holder(registry: Registry, slot: Slot, now: float) -> str | None:
    found = registry.holder("f", slot, now)
    return None if found is None else found.name
