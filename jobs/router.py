"""The router application (`python -m jobs.router --role active|backup|both`): routing in Real-Time Mode (R2, R3).

Two routers run all the time, on the same messages, with the same decisions. Each stops for a moment between its
batches; they are kept half a batch apart, so that one covers the other's pauses, as it covers its crash and its
update (R5). A query that has drifted too far is started anew at the right moment.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Event

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.application import hold_checkpoints, run_application
from jobs.observe.observer import Observer
from jobs.observe.routing import RouterMetrics, Told, router_place
from jobs.progress import StatusListener, first_line
from jobs.spark import build_session
from jobs.storage import storage_settings
from pipelines.phase import Phase, next_start
from pipelines.routing import RoutingPlan, route
from pipelines.sinks import produce_in_real_time
from pipelines.sources import Kafka, read_table, realtime_stream
from pipelines.streams import StreamId
from schemas.readiness import announce_ready
from schemas.settings import Settings
from schemas.tables import ROUTES
from schemas.topics import Topics

ROLES = ("active", "backup")
WATCH_S = 0.5
LONGEST_PAUSE_S = 30.0

log = structlog.get_logger(__name__)


def session_settings(settings: Settings) -> dict[str, str]:
    """What a routing session has beside :mod:`jobs.spark`. The file settings cut a pause from 200 ms to 30; they suit
    stateless queries only, and demand that one driver has the checkpoint (see `jobs.application.hold_checkpoints`)."""
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
        **storage_settings(settings.storage),
    }


def threads(settings: Settings, roles: Sequence[str]) -> int:
    """A task for each partition and query, all the time, and some for what runs between: fewer starve a partition."""
    return len(roles) * settings.kafka.ingress_partitions + 4


@dataclass
class Router:
    """One role's query, kept going and in phase.

    In a process of its own a role's phase is that of the clock (`anchor`, seconds since the epoch); where both roles
    share a process the active runs free (`anchor` None), and the backup keeps half a period from it (`twin`).
    """

    spark: SparkSession
    settings: Settings
    role: str
    told: Told
    anchor: float | None = None
    twin: "Router | None" = None
    query: StreamingQuery | None = None
    due: float = 0.0
    pause_s: float = 0.0
    began: float = 0.0
    has_flowed: bool = False

    def __post_init__(self) -> None:
        self.stream = StreamId(f"router-{self.role}")
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
            if not self.has_flowed and self.is_flowing():
                self.has_flowed = True
                self.told.readiness.runs(self.stream.query)
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

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def _keep_phase(self, query: StreamingQuery, now: float) -> None:
        progress = query.lastProgress
        if progress is not None:
            began = datetime.fromisoformat(progress.timestamp).timestamp()
            pause_s = self.phase.ended(progress.batchId, began, progress.batchDuration / 1000)
            if pause_s is not None:
                self.told.metrics.paused(self.role, pause_s)
        target = self._target()
        if target is None or not self.phase.is_off(*target):
            return
        anchor, period_s = target
        at = next_start(now, period_s, anchor)
        if at - now > 2 * WATCH_S:
            return
        time.sleep(max(0.0, at - now))
        off_s = round(self.phase.off_s(anchor, period_s), 2)
        log.info("realigning", router=self.role, off_s=off_s, pause_s=round(self.phase.pause_s, 3))
        query.stop()
        self.told.metrics.realigned(self.role)
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
        records = route(realtime_stream(self.spark, kafka, topics.ingress), routes, plan)
        checkpoint = self.stream.checkpoint(settings.tables)
        target = self._target()
        trigger_s = self.phase.begin(self.phase.batch_s if target is None else target[1], realigned)
        return produce_in_real_time(records, self.stream, checkpoint, kafka, trigger_s)

    def _failed(self, now: float, error: str) -> None:
        lasted = now - self.began > LONGEST_PAUSE_S
        first = self.settings.router.restart_backoff_s
        self.pause_s = first if lasted or not self.pause_s else min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.query, self.due, self.has_flowed = None, now + self.pause_s, False
        self.told.failed(self.stream.query, error)
        log.error("router failed", router=self.role, error=first_line(error), again_in_s=self.pause_s)


def await_routes(spark: SparkSession, settings: Settings, stopped: Event) -> None:
    """Waits for the routes table with its catch-all row; the ledger application makes it."""
    while not stopped.is_set():
        try:
            if read_table(spark, settings.tables, ROUTES).head(1):
                return
        except PySparkException:
            log.debug("no routes table yet")
        stopped.wait(WATCH_S)


def start_order(spark: SparkSession, settings: Settings, roles: Sequence[str], told: Told) -> list[Router]:
    """The routers of this process. A second one waits for the first to flow, but not for ever."""
    half = settings.router.batch_s / 2
    if len(roles) < len(ROLES):
        return [Router(spark, settings, role, told, anchor=half * ROLES.index(role)) for role in roles]
    active = Router(spark, settings, ROLES[0], told)
    return [active, Router(spark, settings, ROLES[1], told, twin=active, due=time.time() + LONGEST_PAUSE_S)]


def run(settings: Settings, roles: Sequence[str], part: str, stopped: Event) -> None:
    """The routers of `roles`, until `stopped`; ready when records flow, those of the second half a batch later."""
    held = [hold_checkpoints(settings, f"router-{role}", "run the other role", stopped) for role in roles]
    name = part or (f"router-{roles[0]}" if len(roles) == 1 else "router")
    observer = Observer(name, router_place(settings.router, roles), settings.log, time.time)
    spark = build_session("router", f"local[{threads(settings, roles)}]", session_settings(settings))
    listener = StatusListener(settings.data, part or "router", time.time, observer.watchers)
    spark.streams.addListener(listener)
    await_routes(spark, settings, stopped)
    told = Told(RouterMetrics(observer.registry, roles), observer.readiness, listener.failed)
    routers = start_order(spark, settings, roles, told)
    observer.watch(spark, {router.stream.query: settings.router.batch_s for router in routers})
    announced = False
    while not stopped.wait(WATCH_S):
        now = time.time()
        observer.look(now)
        for router in routers:
            router.watch(now)
        if not announced and any(router.is_flowing() for router in routers):
            announced = True
            # The second one needs about as long to start as the first, and is to flow half a batch after it.
            wait_s = max(0.0, settings.router.batch_s / 2 - (now - routers[0].began))
            for router in routers[1:]:
                router.due = min(router.due, now + wait_s)
            if part:
                announce_ready(settings.data, part, {"listeners": observer.listeners})
            log.info("ready", roles=list(roles))
    observer.readiness.ends()
    for router in routers:
        router.stop()
    spark.stop()
    observer.stop()
    for checkpoints in held:
        checkpoints.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.router", description=__doc__)
    parser.add_argument("--role", choices=[*ROLES, "both"], required=True)
    role = parser.parse_args(arguments).role
    roles = ROLES if role == "both" else (role,)
    return run_application(lambda settings, part, stopped: run(settings, roles, part, stopped))


if __name__ == "__main__":
    sys.exit(main())
