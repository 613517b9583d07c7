"""`python -m bench [--only NAME] [--quick | --times N]`: all measurements in one run, in an hour and a half."""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.cluster import ClusterBench
from bench.demo import DemoBench
from bench.edge import EdgeBench
from bench.feed_ledger import FeedLedgerBench
from bench.feed_subscriber import SubscriberBench
from bench.feeds import FeedsBench
from bench.figures import JSON, TIMES, Figures
from bench.gateway import GatewayBench
from bench.gateway_start import StartBench
from bench.ledger import LedgerBench
from bench.ledger_growth import StateBench, TablesBench
from bench.plot import AIMS, CLUSTER_AIMS, PER_CPU, PLOT, plot
from bench.processes import running_broker, spark_session
from bench.router import RouterBench
from bench.stack import TWO_PROCESSES, FailoverBench, ReplacementBench, stack_bench
from bench.throughput import ThroughputBench
from edge.sim import figures as mesh_figures
from jobs.runtime.signals import interrupt_on_signals

OUT = Path("build")
ROUTES = (100, 10_000, 200_000)
STATES = ("instructions", "outcomes", "completions", "completion")
"""The queries whose state is measured."""
REPLACED = ("silence_ms", "p99_ms", "max_ms", "p99_vs_quiet", "p99_vs_spare", "quiet_p99_ms", "spare_p99_ms")
"""What is measured when routers are replaced."""
OF_MESH = ("edge",)
"""The parts whose keys stand in mesh.json too, beside the figures of the simulation."""

Measure = Callable[[Figures, float], None]
"""Measures, in `scale` times the usual time."""


class Measurement(NamedTuple):
    """A part of the run, and the keys of it that the documents name, and that a whole run must have."""

    measure: Measure
    keys: tuple[str, ...]


MEASUREMENTS: dict[str, Measurement] = {}


def measures(*keys: str) -> Callable[[Measure], Measure]:
    """Makes a function the measurement of its name."""

    def add(measure: Measure) -> Measure:
        MEASUREMENTS[measure.__name__] = Measurement(measure, keys)
        return measure

    return add


@measures("demo_install_s", "demo_total_s", "demo_settle_s", "demo_p50_ms", "demo_p99_ms")
def demo(figures: Figures, scale: float) -> None:
    say("make demo, as on a machine that has nothing of it yet")
    DemoBench(figures).run()


@measures("up_to_first_message_s", "idle_cores", "idle_rss_mb", "path_cold_p99_ms", "path_qos1_p99_ms")
def path(figures: Figures, scale: float) -> None:
    say("the whole stack")
    with stack_bench(figures) as stack:
        figures.add("up_to_first_message_s", round(stack.up_s, 1))
        stack.idle(settle_s=90, seconds=45 * scale)
        stack.path("cold", 1, seconds=60 * scale, warm_s=35)
        stack.warm(seconds=120)
        for qos in (1, 0, 2):
            stack.path(f"qos{qos}", qos, seconds=60 * scale, warm_s=35)
        stack.path("tls", 1, seconds=60 * scale, warm_s=35, with_tls=True)


@measures(
    "bare_server_per_cpu_s",
    *PER_CPU,
    "share_group_per_cpu_s",
    *(f"share_group_{name}_ms" for name in ("p50", "p99", "qos2_p50", "qos2_p99")),
    "quiet_beside_flood_ratio",
    "connect_1000_p99_ms",
    "idle_connection_kb",
)
def gateway(figures: Figures, scale: float) -> None:
    say("one gateway, QoS 1, 256 bytes: messages a CPU second of its process")
    with running_broker() as bootstrap:
        bench = GatewayBench(bootstrap, figures, 20 * scale)
        bench.ceiling()
        bench.throughput("in", 50, 20, "gateway_in")
        bench.throughput("in", 2000, 1, "gateway_in_2000")
        bench.throughput("out", 50, 20, "gateway_out")
        bench.throughput("out", 2000, 1, "gateway_out_2000")
        bench.throughput("fanout", 1000, 5, "fanout_1000")
        bench.throughput("share", 4, 250, "share_group")
        bench.share_latency(4, 200)
        bench.quiet()
        bench.connect(5000, 1000)


@measures("start_without_disk_ms", "start_with_disk_ms", "start_empty_ms")
def start(figures: Figures, scale: float) -> None:
    say("a gateway's start: 20,000 sessions, 100,000 queued messages")
    with running_broker() as bootstrap:
        StartBench(bootstrap, figures).run()


@measures("router_pair_p99_ms", "router_pair_p99_ms_1000", "router_single_p99_ms", "microbatch_p99_ms")
def router(figures: Figures, scale: float) -> None:
    say("router, Kafka to Kafka, first copies, two routes a message")
    with running_broker() as bootstrap:
        bench = RouterBench(bootstrap, figures)
        pair, single = ("jobs.router", "--role", "both"), ("jobs.router", "--role", "active")
        bench.latency("router_pair", pair, 200, 90 * scale)
        bench.latency("router_pair_1000", pair, 1000, 60 * scale)
        bench.latency("router_single", single, 200, 60 * scale)
        bench.latency("microbatch", ("bench.router",), 200, 30 * scale)
    figures.add("router_pair_p99_ms_1000", figures.values["router_pair_1000_p99_ms"])
    ratio = figures.values["microbatch_p99_ms"] / figures.values["router_pair_p99_ms"]
    figures.add("microbatch_vs_pair_p99", round(ratio, 1))


@measures("router_pause_ms_100", "router_pause_ms_200000", "router_pause_ratio_200k")
def pauses(figures: Figures, scale: float) -> None:
    say("a single router's pause between batches, by the number of routes")
    with running_broker() as bootstrap:
        RouterBench(bootstrap, figures).pauses((ROUTES[0], ROUTES[-1]), rounds=round(6 * scale), batches=4)


@measures(
    "failover_quiet_p99_ms",
    "failover_quiet_silence_ms",
    "kill_active_silence_ms",
    "kill_active_silence_p50_ms",
    *(f"replace_{what}" for what in REPLACED),
)
def failover(figures: Figures, scale: float) -> None:
    say("a router killed, routers replaced, as a subscriber sees it; two router processes")
    with stack_bench(figures, **TWO_PROCESSES) as stack:
        FailoverBench(stack, figures).run(kills=round(12 * scale), quiet_s=120 * scale, warm_s=180)
        ReplacementBench(stack, figures, "replace").run(rounds=round(3 * scale), quiet_s=30, warm_s=0)


@measures(*(f"replace_one_{what}" for what in REPLACED))
def replacement(figures: Figures, scale: float) -> None:
    say("routers replaced, as a subscriber sees it; both in one process, as by default")
    with stack_bench(figures) as stack:
        ReplacementBench(stack, figures, "replace_one").run(rounds=round(6 * scale), quiet_s=30, warm_s=180)


@measures("ledger_events_per_s", "ledger_cpu_us_per_event", "presence_p99_ms", "presence_cold_p50_ms", "presence_cores")
def ledger(figures: Figures, scale: float) -> None:
    say("the ledger: a backlog taken by all queries together; how fresh presence is at 1,000 events a second")
    with running_broker() as bootstrap:
        bench = LedgerBench(bootstrap, figures)
        bench.presence(60 * scale)
        bench.throughput(warm=60_000, messages=round(300_000 * scale))


@measures(
    "ledger_batch_ratio_20m", *(f"state_{what}_{query}" for what in ("growth", "rows_per_message") for query in STATES)
)
def growth(figures: Figures, scale: float) -> None:
    say("the ledger's batches over 0.2 and 20 million rows; its state over an hour's messages")
    heap = {"spark.driver.memory": "2g"}
    with running_broker() as bootstrap, spark_session("local[4]", heap) as spark:
        TablesBench(spark, figures, bootstrap).run(200_000, 20_000_000, rounds=round(15 * scale), messages=2000)
    with spark_session("local[2]", heap) as spark:
        StateBench(spark, figures, round(12_000 * scale)).run()


@measures(*(f"routing_vs_{what}_{routes}" for what in ("passthrough", "tuned_passthrough") for routes in ROUTES))
def throughput(figures: Figures, scale: float) -> None:
    say("throughput of routing against a bare pass-through, Real-Time Mode")
    with running_broker() as bootstrap:
        ThroughputBench(bootstrap, figures, int(1_500_000 * scale)).run(ROUTES)


@measures(
    *AIMS,
    "agent_store_per_s",
    "agent_store_batched_per_s",
    "agent_store_batched_per_cpu_s",
    "disk_syncs_per_s",
    "agent_store_vs_disk",
    "agent_store_batched_vs_disk",
    "agent_drain_per_cpu_s",
    "agent_drain_large_per_s",
    "agent_drain_large_mb_per_s",
    "agent_drain_large_rss_mb",
    "agent_drained_large_rss_mb",
    "client_memory_per_s",
    "client_memory_per_cpu_s",
    "agent_drain_vs_memory",
    "agent_drain_cpu_vs_memory",
    "agent_start_empty_s",
    "agent_start_small_vs_empty",
    "agent_start_small_rss_mb",
    "agent_drain_rss_mb",
    "agent_drained_rss_mb",
    "client_reconnect_ms",
    "client_back_ms",
    "gateway_back_ms",
    "connect_points_p99_ms",
    "connect_points_vs_bare",
)
def edge(figures: Figures, scale: float) -> None:
    say("the edge: an agent, a client, the access point; one gateway, no router")
    with running_broker() as bootstrap:
        EdgeBench(bootstrap, figures, scale).run()


@measures(
    *CLUSTER_AIMS,
    *("takeover_serving_ms", "takeover_quiet_silence_ms", "relay_added_p50_ms"),
    *("move_silence_loaded_ms", "move_quiet_silence_ms"),
    *("path_qos2_alone_p50_ms", "path_qos2_shared_p50_ms"),
)
def cluster(figures: Figures, scale: float) -> None:
    say("gateways that share shards: killed, stopped, shards moved; what sharing costs; a stand-in for the routers")
    with running_broker() as bootstrap:
        ClusterBench(bootstrap, figures, scale).run()


@measures(
    *("feed_ledger_per_s", "feed_ledger_cpu_us"),
    *("feed_merge_per_s", "feed_merge_gaps_per_s", "feed_decode_per_s"),
    *(f"feed_{what}latency_{part}_ms" for what in ("", "single_") for part in ("p50", "p99")),
    *("feed_gap_declared_ms", "feed_gap_declared_max_ms", "feed_gap_recovered_ms", "feed_gap_recovered_p99_ms"),
    *("feed_switch_missing", "feed_switch_doubled", "feed_switch_silence_ms"),
    *("feed_cold_switch_ms", "feed_cold_switch_missing"),
)
def feeds(figures: Figures, scale: float) -> None:
    say("redundant feeds: the merger, copies a CPU second; the ledger of their copies, a backlog")
    FeedsBench(figures, round(400_000 * scale)).run()
    with running_broker() as bootstrap, spark_session("local[4]", {"spark.driver.memory": "2g"}) as spark:
        FeedLedgerBench(spark, bootstrap, figures).run(warm=200_000, count=round(600_000 * scale))
    say("a subscriber of redundant feeds, 1,000 messages a second")
    with running_broker() as bootstrap:
        SubscriberBench(bootstrap, figures, 30 * scale).run()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run(only: str | None, scale: float, figures: Figures, out: Path) -> int:
    """Measures all, or the part `only`, of which the rest of what is in `out` is kept; the exit status, 1 if a part has
    failed, or if a whole run lacks a key that it must have. What is measured is written after each part."""
    if only is not None:
        figures.resume(out)
    failed = []
    for name, part in MEASUREMENTS.items():
        if only not in (None, name):
            continue
        try:
            part.measure(figures, scale)
        except Exception as error:
            traceback.print_exc()
            say(f"failed: {name}: {error}")
            failed.append(name)
        finally:
            if figures.values:
                figures.write(out)
            if name in OF_MESH and (found := {key: figures.values[key] for key in part.keys if key in figures.values}):
                mesh_figures.merge(found, out)
    if figures.values:
        files = [out / JSON, out / TIMES]
        if plot(figures.values, figures.curves, out):
            files.append(out / PLOT)
        say(f"written: {', '.join(map(str, files))}")
    wanted = [key for name, part in MEASUREMENTS.items() if only in (None, name) for key in part.keys]
    missing = [key for key in wanted if key not in figures.values]
    if failed:
        say(f"failed, while the others were measured: {', '.join(failed)}")
    if missing:
        say(f"missing: {', '.join(missing)}")
    return 1 if failed or missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=MEASUREMENTS, help="a part; the figures of the others stay as they are")
    parser.add_argument("--quick", action="store_true", help="a third of the time, noisier tails")
    parser.add_argument("--times", type=float, default=1.0, help="so many times the usual time, and repetitions")
    options = parser.parse_args()
    interrupt_on_signals(signal.SIGTERM, signal.SIGHUP)
    return run(options.only, 1 / 3 if options.quick else options.times, Figures(), OUT)


if __name__ == "__main__":
    sys.exit(main())
