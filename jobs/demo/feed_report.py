"""The output of the feeds' demo: its figures and its table."""

from collections.abc import Mapping
from typing import Any

from feeds.message import FEEDS
from feeds.registry_records import SLOTS
from jobs.demo.feed_account import FeedAccount
from jobs.demo.feed_plan import FeedPlan
from jobs.output import Terminal, cell
from jobs.text_tables import Column

MUST_BE_ZERO = {
    "missing": "missing, though a way had them",
    "doubled": "doubled",
    "misordered": "out of order",
    "altered": "with another payload than the source's",
    "lost_unreported": "lost by both ways and not reported",
    "lost_wrongly": "reported lost, though a way had them",
}
"""Figures that decide the exit status, with their labels."""


def figures(plan: FeedPlan, account: FeedAccount) -> dict[str, Any]:
    """What the demo found."""
    verdict = account.verdict()._asdict()
    return {
        "sent": len(plan.payloads),
        "received": {SLOTS[feed]: account.received(feed) for feed in FEEDS},
        "gaps": {SLOTS[feed]: account.gaps_of(feed)[0] for feed in FEEDS},
        **{name: round(value, 1) if isinstance(value, float) else value for name, value in verdict.items()},
        "gaps_suspected": account.gaps,
        "recovered": account.recovered,
        "switches": {what: account.switches[what] for what in ("dead", "alive", "assigned")},
    }


def progress(account: FeedAccount, adapters: int, is_away: bool) -> Mapping[str, str]:
    """What is shown while the flight is replayed."""
    return {
        "adapters": str(adapters),
        "subscriber": "away" if is_away else "reads",
        "delivered": str(account.delivered),
        "gaps": str(account.gaps),
        "recovered": str(account.recovered),
    }


def show_result(console: Terminal, found: Mapping[str, Any]) -> None:
    """The final table."""
    rows: list[tuple[str, Any]] = [
        ("sent by the source", found["sent"]),
        *((f"received by the way {slot}", count) for slot, count in found["received"].items()),
        *((f"  gaps of the way {slot}", _gaps(found, slot)) for slot in found["gaps"]),
        ("delivered to the subscriber", found["delivered"]),
        ("  of these late: their adapter was dead", found["late"]),
        ("lost by both ways, and reported", found["lost"] - found["lost_unreported"]),
        *((label, found[name]) for name, label in MUST_BE_ZERO.items()),
        ("gaps that the subscriber saw", found["gaps_suspected"]),
        ("  messages of them that came", found["recovered"]),
        ("adapters killed", found["kills"]),
        ("  seen dead, alive again, switched", ", ".join(str(one) for one in found["switches"].values())),
        ("subscriber restarted", found["restarts"]),
        ("ms from reading to delivery: median, p99, longest", _numbers(found, 1, "p50_ms", "p99_ms", "longest_ms")),
        ("seconds: start, replay, settle", _numbers(found, 0, "up_s", "replay_s", "settle_s")),
    ]
    cells = [(label, cell(str(value))) for label, value in rows]
    title = f"A flight on two ways, at {found['speed']:g} times its speed (seed {found['seed']})"
    console.show_table((Column("figure"), Column("", is_number=True)), cells, title=title)
    wrong = [f"{label}: {found[name]}" for name, label in MUST_BE_ZERO.items() if found[name]]
    if wrong:
        console.print(f"these must be 0: {', '.join(wrong)}", style="red")


def _gaps(found: Mapping[str, Any], slot: str) -> str:
    return f"{found['gaps'][slot]} ({found['sent'] - found['received'][slot]} messages)"


def _numbers(found: Mapping[str, Any], digits: int, *names: str) -> str:
    return ", ".join("–" if found[name] is None else f"{found[name]:.{digits}f}" for name in names)
