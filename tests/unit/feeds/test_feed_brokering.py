"""Which streams a subscriber is told of (S1)."""

from hypothesis import given
from hypothesis import strategies as st

from feeds.brokering import advice, status_of
from feeds.pairing import Paired, decide
from feeds.registry import Registry
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey, other_slot
from tests.unit.feeds.feed_beats import SEQUENCED, UNNUMBERED, beat

FEED = "f"

beats = st.builds(
    beat,
    slot=st.sampled_from(SLOTS),
    boot=st.integers(0, 3),
    source=st.sampled_from([SEQUENCED, UNNUMBERED]),
    state=st.sampled_from(["up", "up", "up", "waiting", "source_lost", "gone"]),
    machine=st.sampled_from(["m1", "m2"]),
    zone=st.sampled_from(["", "z1", "z2"]),
)


def registry_of(adapters: dict[str, tuple[AdapterBeat, bool]], active: str | None = None) -> Registry:
    """At time 10; those that are not alive were heard of before."""
    registry = Registry(0.6, adapters=100, subscribers=10)
    for name, (one, is_alive) in adapters.items():
        registry.apply(RegistryKey("adapter", FEED, name), one, 10.0 if is_alive else 1.0)
    if active is not None:
        assigned = Assignment(active=active, revision=7, reason="", by="x", at_us=0)  # type: ignore[arg-type]
        registry.apply(RegistryKey("assignment", FEED), assigned, None)
    return registry


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(beats, st.booleans())),
    st.sampled_from([None, "active", "backup"]),
)
def test_any_adapters_are_brokered_safely(adapters: dict[str, tuple[AdapterBeat, bool]], active: str | None) -> None:
    """S1: only adapters that are alive and write are named; two of them only if they are a pair, and on different
    machines and in different zones if there is such a choice; and why not, if there are not two."""
    registry = registry_of(adapters, active)
    status = status_of(registry, FEED, 10.0)
    writers = {slot: registry.writers(FEED, slot, 10.0) for slot in SLOTS}
    assigned = active or "active"
    assert status.assigned == assigned
    for named in (status.active, status.backup):
        assert named is None or named in writers[named.beat.slot]
    assert (status.state == "down") is (not any(writers.values()))
    assert (status.active is None) is (status.state == "down")
    assert (status.state == "redundant") is (status.backup is not None) is (not status.reason)
    if status.active is not None and writers[status.assigned]:
        assert status.active.beat.slot == status.assigned, "the assigned stream, as long as somebody writes it"
    choices = [
        (one, other)
        for one in writers[status.assigned]
        for other in writers[other_slot(status.assigned)]
        if isinstance(decide(one.beat.source, other.beat.source), Paired)
    ]
    assert (status.state == "redundant") is bool(choices)
    if status.active is not None and status.backup is not None:
        assert (status.active, status.backup) in choices
        apart = [1 for one, other in choices if one.beat.machine != other.beat.machine]
        assert (status.active.beat.machine != status.backup.beat.machine) is bool(apart)
        zones = [
            1
            for one, other in choices
            if one.beat.machine != other.beat.machine and not (one.beat.zone and one.beat.zone == other.beat.zone)
        ]
        has_advice = any("both adapters" in sentence for sentence in advice(registry, FEED, 10.0))
        assert has_advice is (not zones)


def test_a_pair_that_is_refused_says_why_and_names_one() -> None:
    """S1: nobody may merge streams without common numbers."""
    status = status_of(
        registry_of({n: (beat(s, 1, source=UNNUMBERED), True) for n, s in zip("ab", SLOTS, strict=True)}, "backup"),
        FEED,
        10.0,
    )
    assert (status.state, status.backup) == ("refused", None)
    assert status.active is not None
    assert status.active.name == "b"
    assert "feed sequence" in status.reason


def test_the_reason_names_the_adapter_that_is_missing() -> None:
    here = (beat("active", 1), True)
    for state, is_alive, text in (
        ("gone", True, "the adapter b was stopped"),
        ("up", False, "the adapter b is silent"),
        ("refused", True, "the adapter b is refused (no numbers)"),
    ):
        other = (beat("backup", 1, state=state, reason="no numbers"), is_alive)
        status = status_of(registry_of({"a": here, "b": other}), FEED, 10.0)
        assert status.state == "single"
        assert text in status.reason
