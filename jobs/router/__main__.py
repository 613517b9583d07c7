"""The router application (`python -m jobs.router --role active|backup|both`): routing in Real-Time Mode (R2, R3).

Two routers run all the time, on the same messages, with the same decisions. Each pauses for a moment between its
batches; they are kept half a batch apart, so that one covers the other's pauses, as it covers its crash and its update
(R5). A process with only one of them covers its own pauses too, with a standby query (`router.standby_query`), so that
even without the other process there are no pauses. A query that has drifted too far is restarted at the right moment.

`--generation N` runs a new version alongside the old one, each with its own checkpoint: N starts from the position of
the previous generation. With `--alongside` it reports ready only once it has caught up, so that the old one may be
stopped.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from threading import Event

import structlog
from pyspark.sql import SparkSession

from jobs.observe.observer import Observer
from jobs.observe.progress import StatusListener
from jobs.observe.routing import RouterMetrics, RouterReporter, router_listen_address
from jobs.router.query import LONGEST_PAUSE_S, Router, until_next_look
from jobs.router.routes_follower import await_routes, keep_routes
from jobs.runtime.application import hold_checkpoints, run_application
from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings
from jobs.stack.topics import admin_client, topic_ends
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.streams import StreamId
from schemas.cluster_settings import router_slots
from schemas.readiness import alongside as alongside_name
from schemas.readiness import announce_ready
from schemas.settings import Settings
from schemas.topics import Topics

ROLES = ("active", "backup")
SPARE_THREADS = 4
log = structlog.get_logger(__name__)


def session_settings(settings: Settings) -> dict[str, str]:
    """A routing session's settings in addition to :mod:`jobs.runtime.spark_session`. The file settings cut a pause from
    200 ms to 30; they suit stateless queries only, and require that one driver has the checkpoint (see
    `jobs.runtime.application.hold_checkpoints`)."""
    return {
        "spark.driver.memory": settings.stack.router_heap,
        JAVA_OPTIONS: settings.stack.router_java_options,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "4000",
        # A pause between batches consists of planning and of reading the routes. Adaptive planning would gain nothing
        # here. Several tasks read many routes, one task few, and results need not go through a block store.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.maxPartitionBytes": "4m",
        "spark.task.maxDirectResultSize": "128m",
        # A broadcast of the routes stays in this process, so compressing it is a waste.
        "spark.broadcast.compress": "false",
        "spark.broadcast.checksum": "false",
        # `is_flowing` must see a task when it starts, not at the next heartbeat ten seconds later.
        "spark.ui.liveUpdate.period": "0",
        **storage_settings(settings.storage),
    }


def threads(settings: Settings, roles: Sequence[str]) -> int:
    """Threads that routing always occupies, plus some for other work."""
    return router_slots(settings.kafka.ingress_partitions, settings.router.standby_query, len(roles)) + SPARE_THREADS


def start_order(
    spark: SparkSession,
    settings: Settings,
    routes: RoutesInMemory,
    roles: Sequence[str],
    reporter: RouterReporter,
    generation: int = 1,
) -> list[Router]:
    """The routers of this process. The second one waits until the first flows, up to a limit.

    A role alone in its process starts its batches at a quarter of the period that the other role does not use.
    """
    router = partial(Router, spark, settings, routes, reporter=reporter, generation=generation)
    later, half = time.time() + LONGEST_PAUSE_S, settings.router.batch_s / 2
    if len(roles) == len(ROLES):
        active = router(role=ROLES[0])
        return [active, router(role=ROLES[1], peer=active, due=later)]
    anchor = ROLES.index(roles[0]) * (half / 2 if settings.router.standby_query else half)
    own = router(role=roles[0], anchor=anchor)
    if not settings.router.standby_query:
        return [own]
    own.paired = router(role=roles[0], standby=True, anchor=anchor + half, due=later, paired=own)
    return [own, own.paired]


def ingress_ends(settings: Settings) -> dict[int, int]:
    """The end of `ingress` now, by partition. Raises TopicsError if the broker does not answer."""
    kafka, ingress = settings.kafka, Topics(settings.kafka.prefix).ingress
    found = topic_ends(admin_client(kafka.bootstrap, kafka.client), ingress)
    return {n: offset for end in found if end.name == ingress for n, offset in enumerate(end.end_offsets)}


def run(
    settings: Settings, part: str, stopped: Event, *, roles: Sequence[str], generation: int = 1, alongside: bool = False
) -> None:
    """Runs the routers of `roles` until `stopped`; ready when records flow, those of the second half a batch later.

    With `alongside`, ready when each has routed all that was on `ingress` when records began to flow.
    """
    streams = [StreamId(f"router-{role}", generation) for role in roles]
    otherwise = "start the other role, or another --generation"
    held = [hold_checkpoints(settings, stream.name, otherwise, stopped) for stream in streams]
    name = part or (streams[0].query if len(roles) == 1 else "router")
    observer = Observer(name, router_listen_address(settings.router, roles), settings.log, time.time, alongside)
    spark = build_session("router", f"local[{threads(settings, roles)}]", session_settings(settings))
    listener = StatusListener(settings.data, part or "router", time.time, observer.watchers)
    spark.streams.addListener(listener)
    routes = RoutesInMemory(spark, settings.tables, streams[0])
    await_routes(routes, stopped)
    reporter = RouterReporter(RouterMetrics(observer.registry), observer.readiness, listener.failed)
    routers = start_order(spark, settings, routes, roles, reporter, generation)
    observer.watch(spark, {router.stream.query: settings.router.batch_s for router in routers})
    # Start now: otherwise the first batch would use the routes from before a start that may take a minute.
    every_s = settings.router.routes_refresh_s
    reader = keep_routes(routes, every_s, stopped, lambda: not any(r.is_near_end(time.time()) for r in routers))
    flows = announced = False
    ends: dict[int, int] = {}
    while not stopped.wait(until_next_look(routers, time.time())):
        now = time.time()
        observer.look(now)
        # A query that has not caught up covers no pauses: realigning it would only delay its catching up.
        keeps_phase = announced or not alongside
        for router in routers:
            router.watch(now, keeps_phase)
        if not flows and any(router.is_flowing() for router in routers):
            flows = True
            ends = ingress_ends(settings) if alongside else {}
            # The second one needs about as long to start as the first, and should flow half a batch after it.
            wait_s = max(0.0, settings.router.batch_s / 2 - (now - routers[0].began))
            for router in routers[1:]:
                router.due = min(router.due, now + wait_s)
        if flows and not announced and (not alongside or all(router.has_caught_up(ends) for router in routers)):
            announced = True
            if part:
                facts = {"listeners": observer.listeners}
                announce_ready(settings.data, alongside_name(part) if alongside else part, facts)
            log.info("ready", roles=list(roles), generation=generation)
    observer.readiness.ends()
    for router in routers:
        router.stop(time.time())
    reader.join()
    spark.stop()
    observer.stop()
    for checkpoints in held:
        checkpoints.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.router", description=__doc__)
    parser.add_argument("--role", choices=[*ROLES, "both"], required=True)
    parser.add_argument(
        "--generation",
        type=int,
        default=1,
        help="number of the checkpoint; a new one starts at the position of the previous one",
    )
    parser.add_argument(
        "--alongside", action="store_true", help="be ready only once caught up with the process to be replaced"
    )
    options = parser.parse_args(arguments)
    if options.generation < 1:
        parser.error("argument --generation: expected 1 or more")
    roles = ROLES if options.role == "both" else (options.role,)
    return run_application(partial(run, roles=roles, generation=options.generation, alongside=options.alongside))


if __name__ == "__main__":
    sys.exit(main())
