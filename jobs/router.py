"""The router application (`python -m jobs.router --role active|backup|both`): routing in Real-Time Mode (R2, R3).

Two routers run all the time, on the same messages, with the same decisions. Each stops for a moment between its
batches; they are kept half a batch apart, so that one covers the other's pauses, as it covers its crash and its
update (R5). A process with one of them alone covers its own pauses too, by a second query (`router.relief`), so that
the loss of the other process shows none. A query that has drifted too far is started anew at the right moment.

`--generation N` is how a new version runs beside the old one, each with its checkpoint: N begins where the one before
it is. With `--beside` it says that it is ready only once it is level, so that the old one may be stopped.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Event

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.application import lock_checkpoints, run_application
from jobs.lags import lags
from jobs.progress import StatusListener, first_line, offsets
from jobs.router_routes import await_routes, keep_routes
from jobs.spark import build_session
from jobs.stack.topics import admin_client, topic_ends
from pipelines.checkpoints import inherited_positions
from pipelines.phase import Phase, next_start
from pipelines.routing import RoutingPlan, route
from pipelines.sinks import produce_in_real_time
from pipelines.sources import Kafka, read_table, realtime_stream
from pipelines.streams import StreamId
from schemas.readiness import announce_ready
from schemas.readiness import beside as beside_name
from schemas.settings import Settings
from schemas.tables import ROUTES
from schemas.topics import Topics

ROLES = ("active", "backup")
RELIEF = "-relief"
WATCH_S = 0.5
LONGEST_PAUSE_S = 30.0
NEAR_S = 1.0
"""So long before a batch ends the routes are left as they are: a reader at work would lengthen the pause."""

log = structlog.get_logger(__name__)


def session_settings(settings: Settings) -> dict[str, str]:
    """What a routing session has beside :mod:`jobs.spark`. The file settings cut a pause from 200 ms to 30; they suit
    stateless queries only, and demand that one driver has the checkpoint (see `jobs.application.lock_checkpoints`)."""
    return {
        "spark.driver.memory": settings.stack.router_heap,
        "spark.driver.extraJavaOptions": settings.stack.router_java_options,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "4000",
        # What a pause between batches consists of: planning, and reading the routes. There is nothing that adaptive
        # planning could learn on the way, and the routes' small files are one task.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
        # `is_flowing` wants to know of a task when it begins, not at the next heartbeat ten seconds later.
        "spark.ui.liveUpdate.period": "0",
    }


def threads(settings: Settings, roles: Sequence[str]) -> int:
    """A task for each partition and query, all the time, and some for what runs between: fewer starve a partition."""
    queries = 2 if len(roles) == len(ROLES) or settings.router.relief else 1
    return queries * settings.kafka.ingress_partitions + 4


@dataclass
class Router:
    """One role's query, kept going and in phase.

    In a process of its own a role's phase is that of the clock (`anchor`, seconds since the epoch), and its relief does
    the same as it, half a batch later; where both roles share a process the active runs free (`anchor` None), and the
    backup keeps half a period from it (`twin`).
    """

    spark: SparkSession
    settings: Settings
    role: str
    generation: int = 1
    relief: bool = False
    anchor: float | None = None
    twin: "Router | None" = None
    query: StreamingQuery | None = None
    due: float = 0.0
    pause_s: float = 0.0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.stream = StreamId(f"router-{self.role}{RELIEF if self.relief else ''}", self.generation)
        self.phase = Phase(self.settings.router.batch_s)

    def watch(self, now: float) -> None:
        """Starts or restarts the query if it is time to."""
        if self.query is not None and not self.query.isActive:
            self._failed(now, str(self.query.exception() or "it was stopped"))
        if self.query is None and now >= self.due:
            try:
                self.query, self.began = self._start(), now
            except (PySparkException, Py4JError) as error:
                self._failed(now, str(error))
        if self.query is not None:
            if self.anchor is None and self.phase.began is None and self.is_flowing():
                self.phase.flows(now)
            self._keep_phase(self.query, now)

    def is_flowing(self) -> bool:
        """Whether records flow now: a task for every partition is at work."""
        if self.query is None:
            return False
        tracker = self.spark.sparkContext.statusTracker()
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self.query.runId))
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        wanted = self.settings.kafka.ingress_partitions
        return any(stage is not None and stage.numActiveTasks >= wanted for stage in stages)

    def is_level(self, ends: dict[int, int]) -> bool:
        """Whether all of `ingress` before `ends` (by partition) is routed and committed: its copies are on `egress`."""
        progress = None if self.query is None else self.query.lastProgress
        if progress is None:
            return False
        positions = offsets(progress.sources[0].endOffset)
        return positions != {} and not any(lags(dict.fromkeys(positions, ends), positions).values())

    def is_near_end(self, now: float) -> bool:
        """Whether its batch ends in a moment, as far as that is known."""
        phase = self.phase
        return phase.began is not None and 0 < phase.began + phase.period_s - now < NEAR_S

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def _keep_phase(self, query: StreamingQuery, now: float) -> None:
        progress = query.lastProgress
        if progress is not None:
            began = datetime.fromisoformat(progress.timestamp).timestamp()
            self.phase.ended(progress.batchId, began, progress.batchDuration / 1000)
        target = self._target()
        if target is None or not self.phase.is_off(*target):
            return
        anchor, period_s = target
        at = next_start(now, period_s, anchor)
        if at - now > 2 * WATCH_S:
            return
        time.sleep(max(0.0, at - now))
        off_s = round(self.phase.off_s(anchor, period_s), 2)
        log.info("realigning", router=self.stream.query, off_s=off_s, pause_s=round(self.phase.pause_s, 3))
        query.stop()
        self.query = self._start(realigned=True)

    def _target(self) -> tuple[float, float] | None:
        """A moment at which a batch should begin, and the period; None if there is nothing to keep to."""
        if self.twin is not None:
            phase = self.twin.phase
            return None if phase.began is None else (phase.began + phase.period_s / 2, phase.period_s)
        return None if self.anchor is None else (self.anchor, self.phase.batch_s)

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
        routes = read_table(self.spark, settings.tables, ROUTES)
        # It is read once: a realignment is a pause, and by then there is a checkpoint.
        positions = None if realigned else self._inherited()
        records = route(realtime_stream(self.spark, kafka, topics.ingress, positions), routes, plan)
        checkpoint = self.stream.checkpoint(settings.tables)
        target = self._target()
        trigger_s = self.phase.begin(self.phase.batch_s if target is None else target[1], realigned)
        return produce_in_real_time(records, self.stream, checkpoint, kafka, trigger_s)

    def _inherited(self) -> str | None:
        """Positions to begin at: a new generation where the one before it is, a relief where its role's query is."""
        newest = self.generation if self.relief else self.generation - 1
        elders = [StreamId(f"router-{self.role}", number) for number in range(newest, 0, -1)]
        return inherited_positions(self.spark, self.stream, elders, self.settings.tables) if elders else None

    def _failed(self, now: float, error: str) -> None:
        lasted = now - self.began > LONGEST_PAUSE_S
        first = self.settings.router.restart_backoff_s
        self.pause_s = first if lasted or not self.pause_s else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.query, self.due = None, now + self.pause_s
        log.error("router failed", router=self.stream.query, error=first_line(error), again_in_s=self.pause_s)


def start_order(spark: SparkSession, settings: Settings, roles: Sequence[str], generation: int) -> list[Router]:
    """The routers of this process. A second one waits for the first to flow, but not for ever.

    Alone in its process a role begins at a quarter of a batch that the other does not have.
    """
    later, half = time.time() + LONGEST_PAUSE_S, settings.router.batch_s / 2
    if len(roles) == len(ROLES):
        active = Router(spark, settings, ROLES[0], generation)
        return [active, Router(spark, settings, ROLES[1], generation, twin=active, due=later)]
    anchor = ROLES.index(roles[0]) * (half / 2 if settings.router.relief else half)
    routers = [Router(spark, settings, roles[0], generation, anchor=anchor)]
    if settings.router.relief:
        routers.append(Router(spark, settings, roles[0], generation, relief=True, anchor=anchor + half, due=later))
    return routers


def ingress_ends(settings: Settings) -> dict[int, int]:
    """Where `ingress` ends now, by partition. Raises TopicsError if the broker is silent."""
    kafka, ingress = settings.kafka, Topics(settings.kafka.prefix).ingress
    found = topic_ends(admin_client(kafka.bootstrap, kafka.client), ingress)
    return {n: offset for end in found if end.name == ingress for n, offset in enumerate(end.end_offsets)}


def run(
    settings: Settings, part: str, stopped: Event, *, roles: Sequence[str], generation: int = 1, beside: bool = False
) -> None:
    """The routers of `roles`, until `stopped`; ready when records flow, those of the second half a batch later.

    With `beside`, ready when each has routed all that was on `ingress` when records began to flow.
    """
    names = [f"router-{role}-{generation}" for role in roles]
    locks = [lock_checkpoints(settings.data, name, "run the other role, or another --generation") for name in names]
    spark = build_session("router", f"local[{threads(settings, roles)}]", session_settings(settings))
    spark.streams.addListener(StatusListener(settings.data, part or "router", time.time))
    await_routes(spark, settings, stopped)
    routers = start_order(spark, settings, roles, generation)
    reader = keep_routes(spark, settings, stopped, lambda: not any(r.is_near_end(time.time()) for r in routers))
    flowing = announced = False
    ends: dict[int, int] = {}
    while not stopped.wait(WATCH_S):
        now = time.time()
        for router in routers:
            router.watch(now)
        if not flowing and any(router.is_flowing() for router in routers):
            flowing = True
            ends = ingress_ends(settings) if beside else {}
            # The second one needs about as long to start as the first, and is to flow half a batch after it.
            wait_s = max(0.0, settings.router.batch_s / 2 - (now - routers[0].began))
            for router in routers[1:]:
                router.due = min(router.due, now + wait_s)
        if flowing and not announced and (not beside or all(router.is_level(ends) for router in routers)):
            announced = True
            if part:
                announce_ready(settings.data, beside_name(part) if beside else part, {})
            log.info("ready", roles=list(roles), generation=generation)
    for router in routers:
        router.stop()
    reader.join()
    spark.stop()
    for lock in locks:
        lock.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.router", description=__doc__)
    parser.add_argument("--role", choices=[*ROLES, "both"], required=True)
    parser.add_argument("--generation", type=int, default=1, help="which checkpoint; begins where the one before is")
    parser.add_argument("--beside", action="store_true", help="ready only when level with the one to be replaced")
    options = parser.parse_args(arguments)
    if options.generation < 1:
        parser.error("argument --generation: expected 1 or more")
    roles = ROLES if options.role == "both" else (options.role,)
    return run_application(partial(run, roles=roles, generation=options.generation, beside=options.beside))


if __name__ == "__main__":
    sys.exit(main())
