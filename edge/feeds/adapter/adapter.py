"""A feed adapter: its parts, wired (S2, S4).

    topic `feeds` ◄──► RegistryLink ──► Registry, Holding (who holds the slot), Administration, Lags
                                             │
                                             └── up: Following (source to outputs) until the slot is lost

Beats go out five a second. If one comes later than the time after which an adapter counts as dead, this process stood
still. An adapter that waits for the slot may have taken it, so this one begins anew.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.administrative_items import View
from edge.feeds.adapter.checkpoint_file import CheckpointFile
from edge.feeds.adapter.composer import Counts
from edge.feeds.adapter.following import Following, checkpoint_key
from edge.feeds.adapter.holding import Holding
from edge.feeds.adapter.kafka_output import KafkaOutput
from edge.feeds.adapter.lags import Lags
from edge.feeds.adapter.outputs import Output
from edge.feeds.adapter.own_source import feed_source
from edge.feeds.adapter.registry_link import RegistryLink, Told
from edge.feeds.adapter.settings import AdapterSettings, synchronise_settings
from edge.feeds.adapter.settings_rules import BEAT_S
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.errors import NameTaken
from feeds.registry import Registry
from feeds.registry_records import AdapterBeat, RegistryKey
from schemas.feed_words import AdapterState, Slot

_log = logging.getLogger("waystation.feed")
ADAPTERS_MAX: Final = 1_000
"""How many of its feed are remembered."""
FAREWELL_S: Final = 2.0
COUNTS_S: Final = 60.0
"""How often the log has what was written, malformed and dropped so far."""

MakeOutputs = Callable[[AdapterSettings], Sequence[Output]]


class Adapter:
    """`await Adapter(settings).run(stopping)`. `more_outputs`: makes outputs beside Kafka's `feed.<name>`."""

    def __init__(
        self, settings: AdapterSettings, more_outputs: MakeOutputs = lambda _: (), boot: int | None = None
    ) -> None:
        self._settings, self._more_outputs = settings, more_outputs
        feed = settings.feed
        self._boot = now_us() if boot is None else boot  # until the topic was read
        self._has_read = False
        self._is_rereading = False  # the topic from its beginning, after its connection was lost
        self._source = feed_source(settings.source, settings.limits.streams)
        self._key = RegistryKey("adapter", feed.name, feed.adapter)
        self._registry = Registry(feed.timeout_s, ADAPTERS_MAX, 1)
        self._holding = Holding(self._registry, feed.name, feed.adapter, feed.slot, self._source, feed.timeout_s)
        self._administration = Administration(
            feed.name,
            feed.adapter,
            synchronise_settings(settings.administration),
            settings.administration.keep_s,
        )
        self._lags, self._counts = Lags(), Counts()
        self._following: Following | None = None
        self._seq = 0
        self._sent_at: dict[int, float] = {}  # beats that were not read back yet
        self._claimed_at: int | None = None  # the first beat that claims the slot
        self._has_claimed = False  # it was read back
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._link = RegistryLink(settings.kafka, self._on_records)

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set: then it ends in order. Raises WaystationError."""
        with CheckpointFile(Path(self._settings.state.directory), checkpoint_key(self._settings)) as checkpoints:
            self._link.start()
            tasks = [
                asyncio.create_task(self._link.run()),
                asyncio.create_task(self._beat_on()),
                asyncio.create_task(self._follow(checkpoints)),
                asyncio.create_task(_set(stopping)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                await self._end_in_order(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await self._link.close()

    # -- the topic -----------------------------------------------------------------------------------------------------

    def _on_records(self, records: list[Told], is_before: bool) -> None:
        now = self._now()
        other = self._holding.other(now)
        self._is_rereading = is_before
        if not is_before and not self._has_read:
            self._has_read = True
            self._boot = self._registry.boot_after(self._key.feed, self._key.name, self._boot)
        for key, record in records:
            if key.feed != self._key.feed:
                continue
            self._registry.apply(key, record, None if is_before else now)
            self._administration.apply(key, record, now)
            if not isinstance(record, AdapterBeat) or is_before:
                continue
            if key == self._key:
                self._heard_own(record, now)
            elif other is not None and key.name == other.name and self._following and self._following.composer:
                self._lags.other_beat(record.streams, self._following.composer.last, now)
        self._step(now)

    def _heard_own(self, beat: AdapterBeat, now: float) -> None:
        if beat.boot > self._boot:
            self._failure = NameTaken(
                f"another adapter of the feed {self._key.feed} was started as {self._key.name}: give each its own name"
            )
        elif beat.boot == self._boot:
            self._holding.heard(now)
            sent_at = self._sent_at.pop(beat.seq, None)
            if sent_at is not None:
                self._lags.round_trip(now - sent_at)
            if self._claimed_at is not None and beat.seq >= self._claimed_at:
                self._has_claimed = True

    def _step(self, now: float) -> None:
        """What follows from records, or from time."""
        before = self._holding.standing
        standing = self._holding.decide(now)
        if standing != before:
            _log.info("%s%s%s", standing.state, ": " if standing.reason else "", standing.reason)
            self._beat()
        # What ends a request may stand far behind what begins it.
        if self._following is not None and self._following.composer is not None and not self._is_rereading:
            steps = self._administration.step(self._view(now), now)
            for key, record in steps.writes:
                self._link.say(key, record)
            self._following.send_now(steps.overdue)
        self._changed.set()

    def _view(self, now: float) -> View:
        return View(
            slot=self._settings.feed.slot,
            boot=self._boot,
            is_acting=self._holding.is_acting(now),
            is_other_held=self._holding.other(now) is not None,
            slot_of=self._slot_of,
            lead=self._lags.lead,
            other_last=self._lags.other_last,
            has_ended=self._following is not None and self._following.state == "ended",
        )

    def _slot_of(self, adapter: str) -> Slot | None:
        found = self._registry.adapter(self._key.feed, adapter)
        return None if found is None else found.beat.slot

    # -- beats ---------------------------------------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        last = said_at = self._now()
        said = str(self._counts)
        while True:
            now = self._now()
            if now - said_at >= COUNTS_S and said != str(self._counts):
                said_at, said = now, str(self._counts)
                _log.info("so far: %s", said)
            if now - last > self._settings.feed.timeout_s and self._holding.has_standby(now):
                _log.warning(
                    "this process stood still for %.1f s: others may have its slot, so it begins anew", now - last
                )
                self._holding.restart()
                self._changed.set()
            last = now
            self._beat()
            self._step(now)
            await asyncio.sleep(BEAT_S)

    def _beat(self, *, is_last: bool = False) -> None:
        now = self._now()
        following, composer = self._following, self._following.composer if self._following else None
        positions = composer.positions() if composer is not None else {}
        self._seq += 1
        self._sent_at[self._seq] = now
        while len(self._sent_at) > 100:
            del self._sent_at[next(iter(self._sent_at))]
        self._lags.own_beat(positions, now)
        standing = self._holding.standing
        reason = standing.reason
        state: AdapterState = standing.state
        if standing.state == "up":
            self._claimed_at = self._claimed_at or self._seq
            state, reason = (following.state, following.reason) if following else ("source_lost", "claims the slot")
        else:
            self._claimed_at, self._has_claimed = None, False
        beat = AdapterBeat(
            boot=self._boot,
            seq=self._seq,
            slot=self._settings.feed.slot,
            state="gone" if is_last else state,
            at_us=now_us(),
            machine=self._settings.machine,
            zone=self._settings.feed.zone,
            source=self._source,
            reason="" if is_last else reason[:1000],
            messages=self._counts.messages,
            malformed=self._counts.malformed,
            streams=positions,
        )
        self._link.beat(self._key, beat)

    # -- the source ----------------------------------------------------------------------------------------------------

    async def _follow(self, checkpoints: CheckpointFile) -> None:
        settings = self._settings
        while True:
            await self._until(lambda: self._holding.standing.state == "up" and self._has_claimed)
            self._following = Following(
                settings,
                self._source,
                self._administration,
                self._counts,
                checkpoints,
                KafkaOutput(settings.kafka, settings.feed.name),
                self._more_outputs(settings),
                self._on_state,
            )
            running = asyncio.create_task(self._following.run())
            lost = asyncio.create_task(self._until(lambda: self._holding.standing.state != "up"))
            try:
                done, _ = await asyncio.wait([running, lost], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for one in (running, lost):
                    one.cancel()
                await asyncio.wait([running, lost])
                self._following = None

    def _on_state(self) -> None:
        self._beat()
        self._step(self._now())

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    async def _end_in_order(self, tasks: "list[asyncio.Task[None]]") -> None:
        following = self._following
        if following is not None:
            following.stop_reading()
            try:
                async with asyncio.timeout(self._settings.limits.stop_s):
                    await following.flushed()
            except TimeoutError:
                _log.error(
                    "Kafka does not take what was read within %g s: it is lost here", self._settings.limits.stop_s
                )
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        self._beat(is_last=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._link.flushed()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
