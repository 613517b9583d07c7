"""The demo from start to end: stack up, clients, the day, the ledger, the verdict, stack down."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import date, timedelta
from datetime import time as clock_time
from pathlib import Path
from typing import Any, NamedTuple

from jobs.demo import ledger, replay, report
from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.fleet import Fleet
from jobs.demo.flights import HOME_ZONE, Day, load_day
from jobs.demo.ledger import Standing
from jobs.demo.plan import Disconnect, Plan, plan_day
from jobs.demo.progress import Progress
from jobs.demo.stack import allow_open_files, make_room, running
from jobs.output import Terminal

DELIVERED_TIMEOUT_S = 60.0
LEDGER_PATIENCE_S = 150.0
"""How long to wait for the ledger while it makes no progress."""
LEDGER_POLL_S = 1.0
LEDGER_POLL_SHARE = 0.1
"""Share of a processor for polling the ledger, which is taken from the ledger itself."""
GOODBYE_S = 5.0
REPORTED_S = 30.0
"""How long to wait at most until the ledger has what reports that the clients have gone."""

Clock = Callable[[], float]


class Request(NamedTuple):
    """The request. `until`: only flights that left before this time, New York's clock; None for all of them.

    `speed`: simulated seconds a second; `data`: the demo's own directory; `keep`: leave the stack running.
    """

    date: date
    until: clock_time | None
    speed: float
    keep: bool
    data: Path
    overlays: list[Path]
    environ: Mapping[str, str]
    stop_timeout_s: float


class Result(NamedTuple):
    """`figures` in the form of the JSON output; `good`: nothing lost, doubled, out of order or incomplete."""

    figures: dict[str, Any]
    good: bool


def run(request: Request, console: Terminal) -> Result:
    """Run the demo and show it on `console`. Raises DemoError, StackError and any other error that prevents it.

    The stack is stopped at the end, unless `request.keep` is set and the replay is complete.
    """
    began = time.monotonic()
    day = select(load_day(request.date), request.until)
    plan = plan_day(day)
    make_room(request.data, request.stop_timeout_s)
    allow_open_files()
    console.print(
        f"{day.date:%A %d %B %Y}: {len(day.flights)} flights of {len({f.tail for f in day.flights})} aircraft between "
        f"{len(day.airports)} airports; {day.grounded} more were cancelled or diverted"
    )
    console.print("starting the demo's stack")
    finished = False
    with running(
        request.data,
        request.overlays,
        request.environ,
        request.stop_timeout_s,
        lambda: request.keep and finished,
        console.print,
    ) as state:
        up_s = time.monotonic() - began
        host, _, port = state.listeners["mqtt"].rpartition(":")
        account = Account(plan.members)
        with closing(Fleet(plan.members, (host.strip("[]"), int(port)), account, time.monotonic)) as fleet:
            phases = _fly(fleet, plan, account, request, console)
            standing = _ledger_caught_up(fleet, account, request, console, time.monotonic)
            phases["settle_s"] = time.monotonic() - phases.pop("_settling_since")
            # Before they disconnect: afterwards no QoS 0 message is due to them.
            figures = _figures(day, plan, account, standing, fleet.counts, {"up_s": up_s, **phases})
            expected = standing.reports + fleet.online
            _say_goodbye(fleet)
            if standing.reports:
                _await_reports(request.data / "tables", expected)
        shown = _show_result(console, figures, account, request)
        finished = True
    figures["seconds"] = round(time.monotonic() - began, 1)
    good = not any(figures[name] for name in report.MUST_BE_ZERO)
    report.show_commands(console, request.data, shown, request.keep)
    _show_verdict(console, figures, account, good)
    return Result(figures, good)


def select(day: Day, until: clock_time | None) -> Day:
    """The day with only the flights that left before `until`. Raises DemoError if there are none."""
    midnight = day.flights[0].departure.astimezone(HOME_ZONE).replace(hour=0, minute=0) if day.flights else None
    flights = day.flights
    if until is not None and midnight is not None:
        end = midnight + timedelta(hours=until.hour, minutes=until.minute)
        flights = [flight for flight in flights if flight.departure < end]
    if not flights:
        raise DemoError(
            f"no flight left New York on {day.date} before {until}: choose a later --until or another --date"
        )
    served = {code for flight in flights for code in (flight.origin, flight.dest)}
    return day._replace(flights=flights, airports={code: day.airports[code] for code in sorted(served)})


def _fly(fleet: Fleet, plan: Plan, account: Account, request: Request, console: Terminal) -> dict[str, float]:
    """Replays the day; returns how long each phase took, and when settling began."""
    clock = time.monotonic
    began = clock()
    with Progress(console, lambda: report.progress_figures(account, fleet), clock) as progress:
        progress.act = f"{len(plan.members)} clients connect and subscribe"
        replay.muster(fleet, plan, clock, progress.watch)
        mustered = clock()
        progress.act = f"replaying the day at {request.speed:g} times its speed"
        replay.play(fleet, plan, request.speed, clock, progress.watch)
        played = clock()
        progress.act = "all clients reconnect"
        replay.settle(fleet, plan, account, DELIVERED_TIMEOUT_S, clock, progress.watch)
    console.print(f"replayed the day in {played - mustered:.0f} s; waiting for the ledger to catch up")
    return {"muster_s": mustered - began, "replay_s": played - mustered, "_settling_since": played}


def _ledger_caught_up(fleet: Fleet, account: Account, request: Request, console: Terminal, clock: Clock) -> Standing:
    """The ledger once every message is in it and complete, or its state after it has made no progress for a while.

    The clients stay connected meanwhile, to count late copies.
    """
    tables, patience, pause_s = request.data / "tables", ledger.Patience(LEDGER_PATIENCE_S), LEDGER_POLL_S
    with console.status("reading the ledger", refresh_per_second=2) as status:
        while True:
            until = clock() + pause_s
            while (left_s := until - clock()) > 0:
                fleet.poll(left_s)
            asked, spent_s = clock(), time.process_time()
            found, verdict = ledger.standing(tables), account.verdict()
            pause_s = _pause_s(time.process_time() - spent_s)
            left = found.left(verdict.published, verdict.delivered)
            if not left or found.quarantined or patience.is_over(left, asked):
                return found
            incomplete, unrecorded = found.missing(verdict.published), found.unrecorded(verdict.delivered)
            left_over = [f"{incomplete} completions", f"{unrecorded} deliveries", *found.behind]
            status.update(f"the ledger still lacks {', '.join(left_over)}")


def _pause_s(spent_s: float) -> float:
    """How long to wait with the next look at the ledger, if the last one took so much of a processor."""
    return max(LEDGER_POLL_S, spent_s / LEDGER_POLL_SHARE)


def _say_goodbye(fleet: Fleet) -> None:
    """Disconnects everybody."""
    fleet.everybody(Disconnect())
    until = time.monotonic() + GOODBYE_S
    while fleet.online and time.monotonic() < until:
        fleet.poll(0.05)


def _await_reports(tables: Path, expected: int) -> None:
    """Waits until the ledger has the `expected` messages of the platform, one for each client that has gone, and all
    routes: nobody can audit these messages before."""
    until = time.monotonic() + REPORTED_S
    while time.monotonic() < until:
        spent_s = time.process_time()
        found = ledger.standing(tables)
        if found.reports >= expected and found.routes_known:
            return
        time.sleep(_pause_s(time.process_time() - spent_s))


def _figures(
    day: Day,
    plan: Plan,
    account: Account,
    standing: Standing,
    counts: Mapping[str, int],
    phases: Mapping[str, float],
) -> dict[str, Any]:
    verdict = account.verdict()
    return {
        "date": str(day.date),
        "flights": len(day.flights),
        "aircraft": sum(member.role == "aircraft" for member in plan.members),
        "clients": len(plan.members),
        **verdict._asdict(),
        "published_by_qos": account.by_qos(),
        "delivered_after_absence": len(account.waited),
        "incomplete": standing.missing(verdict.published),
        "unrecorded": standing.unrecorded(verdict.delivered),
        "ledger_copies": standing.copies,
        "quarantined": standing.quarantined,
        "ledger_rows": standing.rows,
        **counts,
        **{name: round(seconds, 1) for name, seconds in phases.items()},
    }


def _show_result(console: Terminal, figures: Mapping[str, Any], account: Account, request: Request) -> str | None:
    """Shows table and journey; returns the ledger's id of the message whose journey it is."""
    report.show_result(console, figures)
    waited = [account.message(i) for i in account.waited]
    chosen = next((m for m in waited if m.topic.startswith("@")), waited[0] if waited else None)
    found = ledger.journey(request.data / "tables", chosen.topic, chosen.id) if chosen else None
    if found is None:
        return None
    report.show_journey(console, *found)
    return found[0]


def _show_verdict(console: Terminal, figures: Mapping[str, Any], account: Account, good: bool) -> None:
    if good:
        console.print(
            f"Nothing lost, nothing duplicated, everything complete, in {figures['seconds']:.0f} s.", style="green"
        )
        return
    if not any(figures[name] for name in report.MUST_BE_ZERO if name not in report.BEHIND):
        console.print("The ledger has not caught up.", style="red")
        console.print(
            f"It has made no progress for {LEDGER_PATIENCE_S:.0f} s. The clients got every message, once and in order. "
            "Read `logs/ledger.log` in the data directory, or run the demo again while the machine is less busy."
        )
        return
    console.print("Messages were lost, duplicated or out of order: see the figures in red.", style="red")
    for message_id, client, qos in account.still_due()[:10]:
        topic = account.message(message_id).topic
        console.print(f"  not delivered: {message_id} on {topic} to {client} at QoS {qos}")
