"""When gateways switch by themselves (S1)."""

from feeds.registry import Registry
from feeds.registry_records import Assignment, RegistryKey
from feeds.switching import Switch, SwitchRule, Watched, due_switch, next_look
from tests.unit.feeds.feed_beats import beat

FEED, TIMEOUT_S = "f", 0.6
NEVER = SwitchRule(TIMEOUT_S, "never", 30.0)
WHEN_BACK = SwitchRule(TIMEOUT_S, "when_back", 30.0)


def registry_at(now: float, *alive: str, dead: str = "", automatic: bool | None = None) -> Registry:
    """Adapters named as their slots; `automatic`: the backup was made the active stream so."""
    registry = Registry(TIMEOUT_S, adapters=10, subscribers=10)
    for slot in ("active", "backup"):
        if slot in (*alive, dead):
            registry.apply(RegistryKey("adapter", FEED, slot), beat(slot, 1), now if slot in alive else None)  # type: ignore[arg-type]
    if automatic is not None:
        record = Assignment(active="backup", revision=1, reason="", by="", at_us=0, automatic=automatic)
        registry.apply(RegistryKey("assignment", FEED), record, None)
    return registry


def due(registry: Registry, now: float, followed_since: float = 0.0, rule: SwitchRule = NEVER) -> Switch | None:
    return due_switch(registry, FEED, now, Watched(followed_since, {"active": 50.0}), rule)


def test_a_dead_active_adapter_gives_way_to_the_backup() -> None:
    """S1: with the next revision, and a reason that names the adapter."""
    switch = due(registry_at(100.0, "backup", dead="active"), 100.0)
    assert switch is not None
    assert (switch.active, switch.revision, switch.automatic) == ("backup", 1, True)
    assert "(active)" in switch.reason


def test_nothing_is_switched_without_need_or_knowledge() -> None:
    """S1: both alive; both dead; no adapter of the stream was ever there; the gateway has just begun to follow."""
    assert due(registry_at(100.0, "active", "backup"), 100.0) is None
    assert due(registry_at(100.0, dead="active"), 100.0) is None
    assert due(registry_at(100.0, "backup"), 100.0) is None
    just_begun = registry_at(100.0, "backup", dead="active")
    assert due(just_begun, 100.0, followed_since=99.9) is None
    look = next_look(just_begun, FEED, 100.0, Watched(99.9, {}), NEVER)
    assert look is not None
    assert 99.9 + TIMEOUT_S < look <= 100.0 + TIMEOUT_S
    assert due(just_begun, look, followed_since=99.9) is not None


def test_failback_is_by_setting_after_a_time_and_only_of_what_nobody_asked_for() -> None:
    registry = registry_at(100.0, "active", "backup", automatic=True)
    assert due(registry, 100.0) is None
    assert due(registry, 79.9, rule=WHEN_BACK) is None
    switch = due(registry, 100.0, rule=WHEN_BACK)
    assert switch is not None
    assert (switch.active, switch.revision, switch.automatic) == ("active", 2, False), "not back and forth"
    by_hand = registry_at(100.0, "active", "backup", automatic=False)
    assert due(by_hand, 100.0, rule=WHEN_BACK) is None
