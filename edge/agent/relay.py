"""Relays mail from the platform to a mail server, and reports to senders what could not be delivered (M16, M21).

The relay takes one mail after the other. It performs what :mod:`.relay_decisions` decides; each step is on disk
(:mod:`.relay_store`) before the next one. So a kill at any moment loses nothing, and at most repeats a mail that the
server may have had.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from edge.agent import relay_decisions as decisions
from edge.agent.dsn import Failure
from edge.agent.envelope import Mail
from edge.agent.relay_decisions import Reply, after_attempt, retry_delay_s
from edge.agent.relay_store import Job, RelayStore
from edge.agent.routes import Routes
from edge.agent.settings import RelaySettings
from edge.answers import Changes
from edge.client.errors import DiskFull, NotAccepted

if TYPE_CHECKING:
    from edge.agent.courier import Courier

T = TypeVar("T")
NOT_OURS: Final = Reply(550, "5.7.1 this agent does not relay for the domain")
OFF: Final = "smtp.relay is off"
INTERRUPTED: Final = "the agent ended while the mail was being sent"
WAIT_MOST_S: Final = 3_600.0
DISK_FULL_S: Final = 10.0
NEVER_S: Final = 1e18
STOP_S: Final = 10.0

_log: Final = logging.getLogger("waystation.agent")

OnThread = Callable[..., Awaitable[Any]]
Report = Callable[[Mail, list[Failure]], Awaitable[str]]


class Relay:
    """`courier`: None if `smtp.relay` is off; mails then wait until their lifetime ends, which is reported.
    `on_thread(call, *arguments)` runs a store's method on its thread. `report` tells a sender about failures and
    returns what was done, for the log; it raises NotAccepted if that must be tried again."""

    def __init__(
        self,
        store: RelayStore,
        courier: "Courier | None",
        settings: RelaySettings,
        routes: Routes,
        on_thread: OnThread,
        report: Report,
    ) -> None:
        self._store, self._courier, self._settings, self._routes = store, courier, settings, routes
        self._on_thread, self._report = on_thread, report
        self._changes = Changes()
        self._unreachable = 0  # attempts in sequence
        self._server_s = 0.0 if courier is not None else NEVER_S  # when the server is tried again
        self._has_news = self._is_stopping = False
        self._working = asyncio.Lock()
        self.last_problem = "" if courier is not None else OFF

    async def take(self, mail: Mail) -> bool:
        """Returns once the mail is on disk; False if it was known. Raises StoreFull, StoreError."""
        is_new: bool = await self._on_thread(self._store.add, mail, self._settings.lifetime_s)
        self._wake()
        return is_new

    async def run(self) -> None:
        """For ever."""
        await self.recover()
        await self._say_what_waits()
        while True:
            self._has_news = False
            try:
                while await self._step_unless_stopping():
                    pass
                wait_s = await self._wait_s()
            except DiskFull as error:
                _log.error("%s", error)
                wait_s = DISK_FULL_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changes.until(lambda: self._has_news)

    async def stop(self) -> None:
        """Returns when the mail that is being sent has its answer, or after some seconds: then it may be doubtful."""
        self._is_stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S), self._working:
                pass

    async def recover(self) -> None:
        """What an earlier process was sending is doubtful."""
        for job in await self._on_thread(self._store.interrupted):
            hold = self._settings.doubtful == "hold"
            changed = [decisions.in_doubt(one, INTERRUPTED, hold=hold) for one in job.in_state(decisions.SENDING)]
            await self._insist(self._store.changed, job.mail.id, changed, self._store.now_s, job.attempts)

    async def _say_what_waits(self) -> None:
        waiting = 0 if self._courier is not None else (await self._on_thread(self._store.status))["messages"]
        if waiting:
            _log.warning("%s, and mails wait for it until their lifetime is over: %d", OFF, waiting)

    async def step(self) -> bool:
        """Reports one failure, or attempts one mail; whether there may be more to do now."""
        job: Job | None = await self._on_thread(self._store.unreported)
        if job is not None and await self._tell(job):
            return True
        job = await self._on_thread(self._store.over)
        if job is not None:
            ended = [decisions.expired(one) for one in job.in_state(decisions.WAITING, decisions.HELD)]
            await self._on_thread(self._store.changed, job.mail.id, ended, NEVER_S, job.attempts)
            return True
        job = await self._on_thread(self._store.due)
        if job is None or self._store.now_s < self._server_s:
            return False
        await self._attempt(job)
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _step_unless_stopping(self) -> bool:
        async with self._working:
            return not self._is_stopping and await self.step()

    async def _attempt(self, job: Job) -> None:
        waiting, settings = job.in_state(decisions.WAITING), self._settings
        foreign = [one for one in waiting if not self._routes.relays(one.address)]
        ours = [one for one in waiting if one not in foreign]
        attempt = decisions.Attempt({one.address: NOT_OURS for one in foreign})
        changed = after_attempt(foreign, attempt, hold=False)
        attempts = job.attempts
        if ours:

            async def sending(addresses: list[str]) -> None:
                await self._on_thread(self._store.sending, job.mail.id, addresses)

            assert self._courier is not None
            attempt = await self._courier.deliver(job.mail, [one.address for one in ours], sending)
            self._observe(attempt)
            changed += after_attempt(ours, attempt, hold=settings.doubtful == "hold")
            attempts += 1
        pause_s = retry_delay_s(max(attempts, 1), settings.retry_first_s, settings.retry_most_s)
        is_waiting = any(one.state == decisions.WAITING for one in changed)
        next_s = self._store.now_s + pause_s if is_waiting else NEVER_S
        await self._insist(self._store.changed, job.mail.id, changed, next_s, attempts)

    async def _insist(self, call: Callable[..., None], *arguments: Any) -> None:
        """For what is known here only: while the disk is full it is tried again, and the relay does nothing else."""
        while True:
            try:
                await self._on_thread(call, *arguments)
            except DiskFull as error:
                _log.error("%s", error)
                await asyncio.sleep(DISK_FULL_S)
            else:
                return

    def _observe(self, attempt: decisions.Attempt) -> None:
        """A server that cannot be reached is left alone for a while: each mail would find the same."""
        if attempt.problem and attempt.problem != self.last_problem:
            _log.warning("mail server %s:%d: %s", self._settings.host, self._settings.port, attempt.problem)
        self.last_problem = attempt.problem
        if not attempt.is_unreachable:
            self._unreachable, self._server_s = 0, 0.0
            return
        self._unreachable += 1
        pause_s = retry_delay_s(self._unreachable, self._settings.retry_first_s, self._settings.retry_most_s)
        self._server_s = self._store.now_s + pause_s

    async def _tell(self, job: Job) -> bool:
        failed = job.unreported()
        failures = [
            Failure(one.address, one.reply, one.state == decisions.EXPIRED, one.reply[:3].isdigit()) for one in failed
        ]
        try:
            detail = await self._report(job.mail, failures)
        except NotAccepted as error:
            _log.warning("the report about %s waits: %s", job.mail.id, error)
            return False
        await self._on_thread(self._store.reported, job.mail.id, [one.address for one in failed], detail)
        return True

    async def _wait_s(self) -> float:
        if await self._on_thread(self._store.unreported) is not None:
            return DISK_FULL_S
        turn_s, end_s = await self._on_thread(self._store.next_s)
        return float(min(min(max(turn_s, self._server_s), end_s) - self._store.now_s, WAIT_MOST_S))

    def _wake(self) -> None:
        self._has_news = True
        self._changes.wake()
