"""Keeps one query of a router running and in phase; :mod:`jobs.router` runs the queries of a process."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.observe.lags import lags
from jobs.observe.progress import first_line
from jobs.observe.routing import RouterReporter
from jobs.router.ingress_topic import RouterTopic
from jobs.router.quiet_stop import QuietStop, running_tasks
from jobs.router.routes_follower import UNREADABLE
from jobs.runtime.application import JVM_GONE
from pipelines.kafka.positions import offsets
from pipelines.routing.instructions import RoutingPlan, route
from pipelines.routing.phase import Phase, next_start
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.sinks import produce_in_real_time
from pipelines.sources import Kafka, realtime_stream
from pipelines.storage.checkpoints import TopicReplaced
from pipelines.streams import STANDBY, StreamId
from schemas.errors import WaystationError
from schemas.settings import Settings
from schemas.topics import Topics

WATCH_S = 0.5
LONGEST_PAUSE_S = 30.0
NEAR_S = 1.0
"""Routes are not reloaded this long before and after the end of a batch: reading would lengthen the pause."""

log = structlog.get_logger(__name__)


@dataclass
class Router:
    """Keeps a role's query, or its standby query, running and in phase; :meth:`watch` is called every WATCH_S.

    In a process of its own a role's phase follows the clock (`anchor`, seconds since the epoch), and its standby
    query's is half a batch later: each covers the pauses of the other (`paired`). If both roles share a process the
    active runs free (`anchor` None), and the backup keeps half a period from it, its `peer`.
    """

    spark: SparkSession
    settings: Settings
    routes: RoutesInMemory
    role: str
    reporter: RouterReporter
    generation: int = 1
    standby: bool = False
    anchor: float | None = None
    peer: "Router | None" = None
    paired: "Router | None" = field(default=None, repr=False, compare=False)
    query: StreamingQuery | None = None
    due: float = 0.0
    failed_at: float = 0.0
    pause_s: float = 0.0
    began: float = 0.0
    has_flowed: bool = False
    looked: int | None = None
    realign_at: float | None = None

    def __post_init__(self) -> None:
        self.name = self.role + (STANDBY if self.standby else "")
        self.stream = StreamId(f"router-{self.name}", self.generation)
        self.phase = Phase(self.settings.router.batch_s, patient=self.anchor is not None)
        self.reporter.metrics.expect(self.name)
        self.quietly = QuietStop(self.spark)
        kafka, ingress = self.settings.kafka, Topics(self.settings.kafka.prefix).ingress
        source = Kafka(kafka.bootstrap, kafka.client)
        self.ingress = RouterTopic(source, ingress, self.stream, self._previous_streams(), self.settings.tables)

    def watch(self, now: float, keeps_phase: bool = True) -> None:
        """Starts or restarts the query when due; if it `keeps_phase`, realigns it too.

        Raises the exceptions of `JVM_GONE` if the JVM is gone.
        """
        self.quietly.look(now)
        if self.query is not None and not self.query.isActive:
            self._failed(now, str(self.query.exception() or "the query was stopped"))
        is_set_back = now < self.failed_at  # nobody knows then how long the pause has lasted
        if self.query is None and (now >= self.due or is_set_back):
            self._try_start(now)
            self.began = self.began if self.query is None else now
        if self.query is not None:
            self._look_at_topic(self.query, now)
        if self.query is not None:
            if not self.has_flowed and self.is_flowing():
                self.has_flowed = True
                self.reporter.readiness.runs(self.stream.query)
            if self.anchor is None and self.phase.began is None and self.is_flowing():
                self.phase.flows(now)
            self._note_batch(self.query)
            if keeps_phase:
                self._keep_phase(self.query, now)

    def is_flowing(self) -> bool:
        """Whether records flow now: a task for every partition is running."""
        if self.query is None:
            return False
        return running_tasks(self.spark, self.query.runId) >= self.settings.kafka.ingress_partitions

    def has_caught_up(self, ends: dict[int, int]) -> bool:
        """Whether all of `ingress` before `ends` (by partition) is routed and committed: its copies are on `egress`."""
        progress = None if self.query is None else self.query.lastProgress
        if progress is None:
            return False
        positions = offsets(progress.sources[0].endOffset)
        return positions != {} and not any(lags(dict.fromkeys(positions, ends), positions).values())

    def is_near_end(self, now: float) -> bool:
        """Whether its batch is about to end, or the next has only just begun, as far as known."""
        phase = self.phase
        return phase.began is not None and abs(phase.began + phase.period_s - now) < NEAR_S

    def stop(self, now: float) -> None:
        if self.query is not None:
            self.quietly.stop(self.query, now)

    def _look_at_topic(self, query: StreamingQuery, now: float) -> None:
        """Runs once after each batch: a query whose topic was recreated is stopped, and refused from then on."""
        progress = query.lastProgress
        if progress is None or progress.batchId == self.looked:
            return
        self.looked = progress.batchId
        try:
            self.ingress.look(offsets(progress.sources[0].endOffset).get(self.ingress.name, {}))
        except TopicReplaced as error:
            query.stop()
            self._failed(now, str(error))

    def _note_batch(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None:
            began = datetime.fromisoformat(progress.timestamp).timestamp()
            pause_s = self.phase.ended(progress.batchId, began, progress.batchDuration / 1000)
            if pause_s is not None:
                self.reporter.metrics.paused(self.name, pause_s)

    def _keep_phase(self, query: StreamingQuery, now: float) -> None:
        """Realigns the query if it has drifted, at a moment for which :func:`until_next_look` wakes the caller."""
        if self.realign_at is None:
            self.realign_at = self._moment_to_realign(now)
        if self.realign_at is not None and now >= self.realign_at:
            self.realign_at = None
            self._realign(query, now)

    def _moment_to_realign(self, now: float) -> float | None:
        """When to restart, if that is soon; None if there is no need, or the moment is further away."""
        target = self._target()
        if target is None:
            return None
        self.phase.learn(*target)
        anchor, period_s = target
        in_the_way = self.paired is not None and self.phase.is_in_the_way(anchor, self.paired.phase, period_s)
        if not (in_the_way or self.phase.is_off(anchor, period_s)):
            return None
        at = next_start(now + self.phase.lead_s, period_s, anchor) - self.phase.lead_s
        return at if at - now <= 2 * WATCH_S else None

    def _realign(self, query: StreamingQuery, now: float) -> None:
        target = self._target()
        off_s = None if target is None else round(self.phase.off_s(*target), 2)
        log.info("realigning", router=self.stream.query, off_s=off_s, pause_s=round(self.phase.pause_s, 3))
        self.quietly.stop(query, now)
        self.reporter.metrics.realigned(self.name)
        self._try_start(now, realigned=True)

    def _target(self) -> tuple[float, float] | None:
        """A moment at which a batch should begin, and the period; None if there is no phase to keep."""
        if self.peer is not None:
            phase = self.peer.phase
            return None if phase.began is None else (phase.began + phase.period_s / 2, phase.period_s)
        return None if self.anchor is None else (self.anchor, self.phase.batch_s)

    def _try_start(self, now: float, realigned: bool = False) -> None:
        """Starts the query; if that fails, it is tried again when due, and the others of this process go on. Raises the
        exceptions of `JVM_GONE`."""
        try:
            self.query = self._start(realigned)
        except JVM_GONE:
            raise
        except (*UNREADABLE, WaystationError) as error:
            self._failed(now, str(error))

    def _start(self, realigned: bool = False) -> StreamingQuery:
        settings, topics = self.settings, Topics(self.settings.kafka.prefix)
        kafka = Kafka(settings.kafka.bootstrap, settings.kafka.client)
        plan = RoutingPlan(
            egress=topics.egress,
            progress=topics.progress,
            progress_partitions=settings.kafka.ingress_partitions,
            shards=settings.kafka.shards,
            route_lead_s=settings.router.route_lead_s,
            router=self.role,
        )
        # Checked only at real starts: a realignment is a pause, and by then there is a checkpoint.
        positions = None if realigned else self.ingress.begin()
        records = route(realtime_stream(self.spark, kafka, topics.ingress, positions), self.routes.read(), plan)
        checkpoint = self.stream.checkpoint(settings.tables)
        target = self._target()
        trigger_s = self.phase.begin(self.phase.batch_s if target is None else target[1], realigned)
        return produce_in_real_time(records, self.stream, checkpoint, kafka, trigger_s)

    def _previous_streams(self) -> list[StreamId]:
        """The queries whose positions it may start from: a new generation's is the previous one, a standby query's its
        role's query."""
        newest = self.generation if self.standby else self.generation - 1
        return [StreamId(f"router-{self.role}", number) for number in range(newest, 0, -1)]

    def _failed(self, now: float, error: str) -> None:
        lasted = now - self.began > LONGEST_PAUSE_S
        first = self.settings.router.restart_backoff_s
        self.pause_s = first if lasted or not self.pause_s else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.failed_at = now
        self.query, self.due, self.has_flowed, self.realign_at = None, now + self.pause_s, False, None
        self.reporter.failed(self.stream.query, error)
        log.error("router failed", router=self.stream.query, error=first_line(error), again_in_s=self.pause_s)


def until_next_look(routers: Iterable[Router], now: float) -> float:
    """Seconds until the routers must be watched again: as usual, or earlier when one is due to be realigned."""
    moments = [router.realign_at - now for router in routers if router.realign_at is not None]
    return max(0.0, min([WATCH_S, *moments]))
