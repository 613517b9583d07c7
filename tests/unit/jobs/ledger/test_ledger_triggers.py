"""How often the ledger's queries begin a batch."""

from itertools import combinations
from pathlib import Path

import pytest

from jobs.ledger.queries import HISTORY, trigger_s
from schemas.settings import Settings, load_settings

BASE = Path(__file__).parents[4] / "conf" / "base.toml"


@pytest.fixture
def settings() -> Settings:
    return load_settings([BASE], {})


def test_queries_of_the_history_do_not_keep_time(settings: Settings) -> None:
    """Presence (R12) and routes (R3) share the machine with them: they are not all to begin at once, over and over."""
    every_s = {query: trigger_s(query, settings) for query in HISTORY}
    assert all(abs(one - other) > 0.01 * one for one, other in combinations(every_s.values(), 2))


def test_a_trigger_is_what_is_configured_or_a_little_more(settings: Settings) -> None:
    ledger, presence = settings.ledger, settings.presence
    assert trigger_s("routes", settings) == ledger.routes_trigger_s
    assert trigger_s("completion", settings) == ledger.completion_trigger_s
    assert trigger_s("presence_state", settings) == presence.trigger_s == trigger_s("message_presence_state", settings)
    for query in HISTORY:
        configured = presence.table_trigger_s if query in ("presence", "message_presence") else ledger.trigger_s
        assert configured <= trigger_s(query, settings) <= 1.2 * configured
