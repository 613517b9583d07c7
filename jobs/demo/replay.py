"""The three phases of a replay: all clients connect, the day passes in scaled time, the remaining messages arrive."""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.fleet import Fleet
from jobs.demo.plan import Connect, Plan

MUSTER_TIMEOUT_S = 120.0
LONGEST_WAIT_S = 0.05

Clock = Callable[[], float]
Watch = Callable[[datetime], None]
"""Called often, with the simulated time."""


def muster(fleet: Fleet, plan: Plan, clock: Clock, watch: Watch) -> None:
    """All members connect and subscribe. Raises DemoError if that takes too long."""
    deadline = clock() + MUSTER_TIMEOUT_S
    fleet.muster()
    while not fleet.is_idle:
        if clock() > deadline:
            raise DemoError(
                f"only {fleet.online} of {len(plan.members)} clients connected and subscribed within "
                f"{MUSTER_TIMEOUT_S:g} s: read the gateway's log"
            )
        fleet.poll(LONGEST_WAIT_S)
        fleet.muster()
        watch(plan.begin)


def play(fleet: Fleet, plan: Plan, speed: float, clock: Clock, watch: Watch) -> None:
    """Replays the day, `speed` times as fast; on a slow machine steps are late, but never left out."""
    began = clock()
    steps = deque(plan.steps)
    now = plan.begin
    while steps or now < plan.end:
        now = plan.begin + timedelta(seconds=(clock() - began) * speed)
        while steps and steps[0].at <= now:
            step = steps.popleft()
            fleet.do(step.client, step.action)
        until = steps[0].at if steps else plan.end
        wait_s = (until - now).total_seconds() / speed
        fleet.poll(min(max(wait_s, 0.0), LONGEST_WAIT_S))
        watch(min(now, plan.end))


def settle(fleet: Fleet, plan: Plan, account: Account, timeout_s: float, clock: Clock, watch: Watch) -> bool:
    """Reconnects everybody, so that they receive what they missed; returns whether all that was due arrived within
    `timeout_s`."""
    fleet.everybody(Connect())
    deadline = clock() + timeout_s
    while not (fleet.is_idle and account.is_settled):
        if clock() > deadline:
            return False
        fleet.poll(LONGEST_WAIT_S)
        watch(plan.end)
    return True
