"""The feeds' demo from start to end: the recording, the stack, the adapters, the replay, the verdict (S2, S3)."""

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from typing import Final

from jobs.demo import feed_report
from jobs.demo.errors import DemoError
from jobs.demo.feed_account import FeedAccount
from jobs.demo.feed_day import FeedDay
from jobs.demo.feed_plan import PARIS, FeedPlan, plan_feeds
from jobs.demo.feed_processes import FEED, Adapters, FeedFiles, adapters_running
from jobs.demo.feed_sample import FRAMES, sample
from jobs.demo.progress import Progress
from jobs.demo.run import Request, Result
from jobs.demo.stack import make_room, running
from jobs.output import Terminal
from jobs.stack.state import StackState

SPEED: Final = 40.0
UNTIL: Final = clock_time(9, 23)
"""In Paris: the first half, in a minute."""
SPEED_MOST: Final = 200.0
"""2,400 messages a second: beyond that, one subscriber on a small machine falls behind."""
PARTS: Final = ("gateway",)
"""With the broker. There is no Spark: nothing is routed, and subscribers read from Kafka."""
EPOCH: Final = 1
ASK_S: Final = 2.0
SWITCH_S: Final = 0.001
"""The subscriber's Kafka client works on a thread: it and the ways must not wait for each other for long."""


def run(request: Request, seed: int, prefix: str, console: Terminal) -> Result:
    """Run the demo and show it on `console`. Raises DemoError, StackError and any other error that prevents it.

    Everything started is stopped at the end; the stack stays, without adapters, if `request.keep` is set and the
    replay is complete. `prefix`: of the topics.
    """
    if request.speed > SPEED_MOST:
        raise DemoError(f"with --feeds --speed is at most {SPEED_MOST:g}: a subscriber would fall behind")
    began = time.monotonic()
    sys.setswitchinterval(SWITCH_S)
    recording = sample(request.environ, console.print)
    make_room(request.data, request.stop_timeout_s)
    files = FeedFiles(request.data)
    files.make()
    lines = files.number(recording, EPOCH, request.environ)
    if len(lines) != FRAMES:
        raise DemoError(f"the sequencer has numbered {len(lines)} lines of {FRAMES}: read {recording}")
    plan = plan_feeds(lines, seed, request.speed, request.until or UNTIL)
    account = FeedAccount(plan.payloads, plan.truth)
    console.print(
        f"{len(plan.payloads)} of {len(lines)} Mode S frames of a flight from Paris to Toulouse, numbered, on two ways "
        f"that lose 1 % each, in {plan.seconds:.0f} s; adapters are killed {len(plan.outages)} times (seed {seed})"
    )
    console.print("starting the demo's stack: a broker and a gateway")
    finished = False
    with running(
        request.data,
        [*request.overlays, files.overlay],
        request.environ,
        request.stop_timeout_s,
        lambda: request.keep and finished,
        console.print,
        PARTS,
    ) as state:
        up_s = time.monotonic() - began
        files.configure(state.bootstrap, prefix)
        with adapters_running(files, request.data / "logs", request.environ) as adapters:
            day = asyncio.run(_day(plan, files, adapters, account, state, prefix, console))
            kills = adapters.kills
        finished = True
    figures = {
        "seed": seed,
        "speed": request.speed,
        **feed_report.figures(plan, account),
        "kills": kills,
        "restarts": day.restarts,
        "up_s": round(up_s, 1),
        "replay_s": round(plan.seconds, 1),
        "settle_s": round(day.settled_s, 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    good = not any(figures[name] for name in feed_report.MUST_BE_ZERO)
    feed_report.show_result(console, figures)
    _show_verdict(console, account, good, figures["seconds"])
    return Result(figures, good)


async def _day(
    plan: FeedPlan,
    files: FeedFiles,
    adapters: Adapters,
    account: FeedAccount,
    state: StackState,
    prefix: str,
    console: Terminal,
) -> FeedDay:
    url = f"http://{state.listeners['http']}/v1/feeds/{FEED}"

    async def is_redundant() -> bool:
        return await asyncio.to_thread(_state, url) == "redundant"

    def figures() -> dict[str, str]:
        return dict(feed_report.progress(account, adapters.running, day.is_away))

    begin = datetime.fromtimestamp(plan.begin_us / 1e6, UTC)
    with Progress(console, figures, time.monotonic, "Paris", PARIS) as progress:

        def watch(seconds: float) -> None:
            progress.watch(begin + plan.speed * timedelta(seconds=min(max(0.0, seconds), plan.seconds)))

        day = FeedDay(plan, files, adapters, account, (state.bootstrap, prefix), is_redundant, watch)

        def act(text: str) -> None:
            progress.act = text

        await day.run(act)
    return day


def _state(url: str) -> str:
    """Of the feed, as the administration says; empty while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=ASK_S) as answer:
            return str(json.load(answer)["state"])
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return ""


def _show_verdict(console: Terminal, account: FeedAccount, good: bool, seconds: float) -> None:
    if good:
        console.print(
            f"Nothing missing, nothing doubled; what both ways lost is reported exactly; in {seconds:.0f} s.",
            style="green",
        )
        return
    console.print("The stream that was delivered is not right: see the figures in red.", style="red")
    for number in account.missing()[:10]:
        console.print(f"  not delivered: message {number}")
