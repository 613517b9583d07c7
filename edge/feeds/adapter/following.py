"""One time that an adapter follows its source: from holding its slot until it loses it, or stops (S2).

    open: checkpoint and log say where to continue
    run:  source ──► take/offer ──► Composer ──► Buffer ──► outputs ──► checkpoint

A source that can wait does so while the buffer is full; of one that cannot, what comes then is dropped and counted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Final, Literal

import msgspec
from kafka.errors import KafkaError

from edge.client.kafka_producer import describe
from edge.completion import completed
from edge.feeds.adapter.administration import Administration
from edge.feeds.adapter.buffer import Batch, Buffer
from edge.feeds.adapter.checkpoint_file import CheckpointFile
from edge.feeds.adapter.composer import Composer, Counts
from edge.feeds.adapter.kafka_log import read_log
from edge.feeds.adapter.kafka_output import KafkaOutput
from edge.feeds.adapter.outputs import Output
from edge.feeds.adapter.resume import Checkpoint, LogFold, Repeated
from edge.feeds.adapter.settings import AdapterSettings
from edge.feeds.adapter.source_choice import make_source
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Piece, SourceState
from feeds.message import FeedMessage
from feeds.pairing import FeedSource
from feeds.synchronise import Announcement
from schemas.errors import WaystationError

_log = logging.getLogger("waystation.feed")
RETRY_S: Final = 1.0
DROPS_REPORTED_S: Final = 10.0


class Following:
    """Implements :class:`edge.feeds.adapter.sources.intake.Intake`. `outputs`: beside `kafka`, which decides what is a
    checkpoint. `on_state`: called before the source is read, and when it is reached, lost, or has ended."""

    def __init__(
        self,
        settings: AdapterSettings,
        source: FeedSource,
        administration: Administration,
        counts: Counts,
        checkpoints: CheckpointFile,
        kafka: KafkaOutput,
        outputs: Sequence[Output],
        on_state: Callable[[], None],
    ) -> None:
        self._settings, self._source, self._administration = settings, source, administration
        self._counts, self._checkpoints, self._on_state = counts, checkpoints, on_state
        self._kafka, self._outputs = kafka, [kafka, *outputs]
        # They are written one after the other. The log says what a source has brought. So of a file it comes last: what
        # it lacks is read again, for all outputs. Other sources bring nothing again, and those without numbers continue
        # from the log: there it comes first, and no number is used twice.
        self._write_order = [*outputs, kafka] if self._is_file else self._outputs
        limits = settings.limits
        self._buffer = Buffer(limits.buffer_messages, limits.buffer_bytes)
        self._composer: Composer | None = None
        self._stopping = Event()
        self._checkpoint: Checkpoint | None = None
        self._is_stored = True  # the checkpoint is on disk, or about to be
        self._writing = asyncio.Lock()
        self._highest: dict[str, int] = {}  # of each source stream, stored
        self._written = 0  # the last message sequence number, stored
        self._reading: asyncio.Task[None] | None = None
        self._drops_said_at = 0.0
        self.state: SourceState | Literal["ended"] = "source_lost"
        self.reason = "reading the feed's log"

    @property
    def composer(self) -> Composer | None:
        """None until the log was read."""
        return self._composer

    async def run(self) -> None:
        """Follows the source until it is cancelled. Raises WaystationError."""
        try:
            await self._open()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publish())
                tasks.create_task(self._keep_checkpoints())
                tasks.create_task(self._follow())
        except ExceptionGroup as group:
            raise next((one for one in group.exceptions if isinstance(one, WaystationError)), group) from None
        finally:
            self._stopping.set()
            self._administration.deactivate()
            for output in self._outputs:
                await output.close()

    def stop_reading(self) -> None:
        """Ends the source; what was read is still written."""
        self._stopping.set()
        if self._reading is not None:
            self._reading.cancel()

    async def flushed(self) -> None:
        """Returns once outputs have all that was read."""
        while len(self._buffer):
            await asyncio.sleep(0.01)
        await self._write_checkpoint()

    def send_now(self, announcements: Sequence[Announcement]) -> None:
        """Administrative messages whose number has passed."""
        if self._composer is not None and announcements:
            self._buffer.put(self._composer.administrative(announcements, now_us()))

    # -- of sources ----------------------------------------------------------------------------------------------------

    async def take(self, piece: Piece) -> None:
        await asyncio.sleep(0)  # a source that never waits must not keep beats from going out
        await self._buffer.capacity()
        self._put(piece)

    def offer(self, piece: Piece) -> bool:
        if self._buffer.has_capacity:
            self._put(piece)
            return True
        self._counts.dropped += len(piece.found)
        now = asyncio.get_running_loop().time()
        if now - self._drops_said_at > DROPS_REPORTED_S:
            self._drops_said_at = now
            _log.error("the buffer is full, and the source does not wait: %d messages dropped", self._counts.dropped)
        return False

    def is_now(self, state: SourceState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            _log.info("the source is %s%s%s", "reached" if state == "up" else "lost", ": " if reason else "", reason)
            self.state, self.reason = state, reason
            self._on_state()

    def lost_datagrams(self, count: int) -> None:
        self._counts.datagrams_lost += count

    def highest(self) -> Mapping[str, int]:
        assert self._composer is not None
        return self._composer.highest

    def last(self) -> Mapping[str, int]:
        assert self._composer is not None
        return self._composer.last

    # -- inside --------------------------------------------------------------------------------------------------------

    def _put(self, piece: Piece) -> None:
        composer = self._composer
        assert composer is not None
        records = composer.take(piece.found, piece.read_us)
        # While the file brings what the log has, the log's end is not behind a place in the file.
        self._buffer.put(records, None if composer.is_repeating else piece.place)

    async def _open(self) -> None:
        settings = self._settings
        checkpoint = await asyncio.to_thread(self._checkpoints.read)
        for output in self._outputs:
            await output.open()
        fold, ends = await self._read_log(checkpoint)
        self._kafka.offsets = ends
        self._checkpoint, self._highest, self._written = checkpoint, dict(fold.highest), fold.written
        repeated = fold.repeated(is_numbered=self._is_numbered) if self._is_file else Repeated()
        self._composer = Composer(
            settings.feed.adapter, fold, repeated, self._administration, self._counts, settings.limits.streams
        )
        self._administration.activate(self._composer.last, fold.parts)
        self.reason = "reaching the source"
        self._on_state()  # what was announced before is scheduled before the source brings anything

    async def _read_log(self, checkpoint: Checkpoint | None) -> tuple[LogFold, dict[int, int]]:
        said = False
        while True:
            try:
                return await asyncio.to_thread(
                    read_log, self._settings, checkpoint, needs_other=True, stopping=self._stopping
                )
            except (KafkaError, OSError) as error:
                if not said:
                    _log.warning("the feed's log cannot be read: %s", describe(error))
                said = True
                await asyncio.sleep(RETRY_S)

    @property
    def _is_file(self) -> bool:
        return self._settings.address.kind == "file"

    @property
    def _is_numbered(self) -> bool:
        source = self._source
        if source.sequencer is not None or source.format in ("miniseed", "moldudp64"):
            return True
        return source.mapping is not None and source.mapping.number is not None

    async def _follow(self) -> None:
        place = self._checkpoint.place if self._checkpoint is not None else None
        self._reading = asyncio.create_task(make_source(self._settings, self, place).run())
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                self._reading.cancel()
                raise
            return
        self.state, self.reason = "ended", ""
        _log.info("the source has ended")
        self._on_state()

    async def _publish(self) -> None:
        limits, slot = self._settings.limits, self._settings.feed.slot
        while True:
            batch = await self._buffer.next(limits.batch_messages, limits.batch_bytes)
            if batch.records:
                for output in self._write_order:
                    await output.write(slot, batch.records)
            self._buffer.stored(batch)
            self._remember(batch)

    def _remember(self, batch: Batch) -> None:
        highest = self._highest
        for one in batch.records:
            if one.sequence > highest.get(one.stream, -1):
                highest[one.stream] = one.sequence
            if isinstance(one, FeedMessage):
                self._written = one.message_sequence
        if not batch.is_whole or (self._is_file and batch.place is None):
            return
        self._checkpoint = Checkpoint(
            source=checkpoint_key(self._settings),
            place=batch.place,
            offsets=dict(self._kafka.offsets),
            written=self._written,
        )
        self._is_stored = False

    async def _keep_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(self._settings.state.every_s)
            await self._write_checkpoint()

    async def _write_checkpoint(self) -> None:
        """One after the other, also if it is cancelled: the next one writes the same file."""
        async with self._writing:
            if self._is_stored or self._checkpoint is None or self._composer is None:
                return
            self._is_stored = True
            checkpoint = msgspec.structs.replace(self._checkpoint, highest=dict(self._highest))
            await completed(asyncio.to_thread(self._checkpoints.write, checkpoint))


def checkpoint_key(settings: AdapterSettings) -> str:
    """What a checkpoint of this adapter is about."""
    feed, source = settings.feed, settings.source
    return f"{feed.name} {feed.slot} {feed.adapter} {source.format} {source.name} {source.address}"
