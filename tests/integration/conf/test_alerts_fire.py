"""Each alert fires in its case and in no other, as Prometheus itself evaluates the rules (`promtool test rules`)."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import draw

ALERTS = Path(__file__).parents[3] / "conf" / "prometheus" / "alerts.yml"
MINUTES = 90
"""How long a case lasts: longer than any window and any `for` together."""
GATEWAY = 'job="waystation",instance="gateway:9464"'
DISPATCHER = 'job="waystation-dispatcher",instance="gateway:9468"'
SPARK = 'job="waystation-spark",instance='

Series = dict[str, str]
"""Values by series, a minute apart, in promtool's notation: `0+60x90` grows by 60 a minute, `_` is none."""

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (package prometheus) is missing")


def steady(value: float) -> str:
    return f"{value}+0x{MINUTES}"


def growing(a_minute: float) -> str:
    return f"0+{a_minute}x{MINUTES}"


def histogram(name: str, labels: str, seconds: float) -> Series:
    """Of events that take so long, one a second."""
    bounds = (0.05, 0.2, 0.8, 5.0, 60.0)
    taken = {str(bound): 60.0 if seconds <= bound else 0.0 for bound in bounds} | {"+Inf": 60.0}
    buckets = {f'{name}_bucket{{{labels},le="{bound}"}}': growing(each) for bound, each in taken.items()}
    return buckets | {f"{name}_sum{{{labels}}}": growing(60 * seconds), f"{name}_count{{{labels}}}": growing(60)}


def gateway(**changed: str) -> Series:
    """A gateway with clients and traffic; `changed` by the metric's name."""
    steadies = {
        "up": 1,
        "waystation_kafka_brokers_up": 3,
        'waystation_consumer_lag_records{topic="ws.egress",partition="0"}': 10,
        "waystation_largest_queue_messages": 5,
        "waystation_largest_queue_bytes": 500,
        "waystation_connections": 1000,
        "waystation_connections_limit": 10000,
        "process_open_fds": 1050,
        "process_max_fds": 65536,
        "waystation_spool_failing": 0,
    }
    grown = {
        'waystation_publishes_refused_total{reason="by_kafka"}': 0,
        'waystation_deliveries_dropped_total{reason="queue_full"}': 0,
        'waystation_connections_closed_total{reason="connection_lost"}': 6,
        "waystation_records_quarantined_total": 0,
        "waystation_instruction_copies_dropped_total": 600,
        'waystation_deliveries_total{outcome="delivered"}': 600,
        "waystation_admin_requests_refused_total": 0,
    }
    values = {name: steady(value) for name, value in steadies.items()}
    values |= {name: growing(value) for name, value in grown.items()}
    found = {_with(name, GATEWAY): changed.get(name.partition("{")[0], value) for name, value in values.items()}
    for name in ("kafka_produce", "event_loop_lag", "checkpoint"):
        found |= histogram(f"waystation_{name}_seconds", GATEWAY, 0.01)
    return found


def feed(adapters: dict[str, tuple[int, int]], state: str = "redundant") -> Series:
    """A gateway that knows one feed: by slot, how many adapters are alive, and how many silent."""
    found = gateway() | {f'waystation_feed_state{{{GATEWAY},feed="radar",state="{state}"}}': steady(1)}
    for slot, (alive, silent) in adapters.items():
        labels = f'{GATEWAY},feed="radar",slot="{slot}"'
        found[f"waystation_feed_adapters_alive{{{labels}}}"] = steady(alive)
        found[f"waystation_feed_adapters_silent{{{labels}}}"] = steady(silent)
    return found


def member(
    silent: int = 0, unowned: int = 0, alone: int = 0, lost_a_minute: float = 0.2, link: int = 1, behind_s: float = 0.7
) -> Series:
    """A gateway of a cluster with 12 shards: so many have a silent owner or none, and so many of its own no standby.
    `link`: whether that to another gateway is up; `behind_s`: of a shard that it keeps warm."""
    values = {
        'waystation_shards{state="served"}': steady(12 - silent - unowned),
        'waystation_shards{state="starting"}': steady(0),
        'waystation_shards{state="owner_silent"}': steady(silent),
        'waystation_shards{state="no_owner"}': steady(unowned),
        'waystation_takeovers_total{reason="planned"}': growing(0),
        'waystation_takeovers_total{reason="lost"}': growing(lost_a_minute),
        "waystation_shards_without_standby": steady(alone),
        'waystation_link_up{member="gateway-2"}': steady(link),
        'waystation_standby_behind_seconds{shard="3"}': steady(behind_s),
    }
    return gateway() | {_with(name, GATEWAY): value for name, value in values.items()}


def dispatcher(gateways: int = 3, is_up: int = 1, **ended_a_minute: int) -> Series:
    """The dispatcher of the gateway's machine; `ended_a_minute`: connections that no gateway got, by reason."""
    ended = {reason: ended_a_minute.get(reason, 0) for reason in ("full", "no_gateway", "client_left")}
    values = {
        "up": steady(is_up),
        "waystation_dispatcher_gateways": steady(gateways),
        **{
            f'waystation_dispatcher_connections_ended_total{{reason="{reason}"}}': growing(count)
            for reason, count in ended.items()
        },
    }
    return member() | {_with(name, DISPATCHER): value for name, value in values.items()}


def application(instance: str, queries: list[str], **changed: str) -> Series:
    """A Spark application with its queries; `changed` by the metric's name."""
    process = f'{SPARK}"{instance}"'
    found = {
        f"up{{{process}}}": steady(1),
        f"waystation_jvm_heap_used_bytes{{{process}}}": steady(5e8),
        f"waystation_jvm_heap_max_bytes{{{process}}}": steady(1e9),
        f'waystation_jvm_gc_seconds_total{{{process},collector="Copy"}}': growing(0.5),
    }
    for query in queries:
        labels = f'{process},query="{query}"'
        found |= {
            f"waystation_query_up{{{labels}}}": steady(1),
            f"waystation_query_failures_total{{{labels}}}": growing(0),
            f"waystation_query_last_progress_timestamp_seconds{{{labels}}}": growing(60),
            f'waystation_query_lag_records{{{labels},topic="ws.ingress"}}': steady(100),
            f"waystation_query_trigger_seconds{{{labels}}}": steady(10),
            f"waystation_query_state_disk_bytes{{{labels}}}": steady(1e8),
            f"waystation_query_rows_total{{{labels}}}": growing(0 if query == "quarantine" else 600),
        }
        # A router's batch is as long as its trigger, and a moment longer.
        found |= histogram("waystation_query_batch_seconds", labels, 11 if "router" in query else 2)
        if "router" in query:
            router = f'{process},router="{query.removeprefix("router-")}"'
            found |= histogram("waystation_router_pause_seconds", router, 0.1)
    return {series: changed.get(series.partition("{")[0], value) for series, value in found.items()}


FEED = (
    ("waystation_feed_lost_numbers", "", steady(5)),
    ("waystation_feed_differences_total", "", growing(0)),
    ("waystation_feed_last_append_timestamp_seconds", ',slot="active"', growing(60)),
    ("waystation_feed_last_append_timestamp_seconds", ',slot="backup"', growing(60)),
)


def ledger(**changed: str) -> Series:
    found = application("ledger:9467", ["routes", "messages", "quarantine"], **changed)
    lead, as_of = "waystation_route_lead_seconds", "waystation_routes_as_of_timestamp_seconds"
    for name, labels, value in FEED:
        series = f'{name}{{{SPARK}"ledger:9467",feed="radar"{labels}}}'
        found[series] = changed.get(name + labels, changed.get(name, value))
    found |= histogram("waystation_feed_lag_seconds", f'{SPARK}"ledger:9467",feed="radar",later="backup"', 0.1)
    return found | {
        _with(lead, f'{SPARK}"ledger:9467"'): changed.get(lead, steady(25)),
        _with(as_of, f'{SPARK}"ledger:9467"'): changed.get(as_of, growing(60)),
    }


def both(**changed: str) -> Series:
    """Both roles in one process."""
    return application("router:9465", ["router-active", "router-backup"], **changed)


def alone(role: str, port: int, **changed: str) -> Series:
    """A role in a process of its own, with its standby query."""
    return application(f"router:{port}", [f"router-{role}", f"router-{role}-standby"], **changed)


def pair() -> Series:
    return alone("active", 9465) | alone("backup", 9466)


def stopped(series: Series, query: str) -> Series:
    """These queries of `series` do not run (a part of their names)."""
    return {
        name: steady(0) if name.startswith("waystation_query_up") and f'query="{query}' in name else value
        for name, value in series.items()
    }


def unanswered(series: Series, job: str = "") -> Series:
    """What is left of an application that answers no scrape; of those of one `job`, if it is given."""
    return {name: steady(0) for name in series if name.startswith("up{") and f'job="{job}' in name}


def slow(series: Series, name: str, labels: str, seconds: float) -> Series:
    return series | histogram(f"waystation_{name}_seconds", labels, seconds)


def _with(name: str, labels: str) -> str:
    metric, _, own = name.partition("{")
    return f"{metric}{{{labels},{own}" if own else f"{metric}{{{labels}}}"


def scenario(gateways: Series | None = None, routers: Series | None = None, tables: Series | None = None) -> Series:
    parts = (gateways, gateway()), (routers, both()), (tables, ledger())
    return {name: value for given, usual in parts for name, value in (usual if given is None else given).items()}


MESSAGES = f'{SPARK}"ledger:9467",query="messages"'
CASES: dict[str, tuple[Series, set[str]]] = {
    "one process with both roles": (scenario(), set()),
    "two processes with standby queries": (scenario(routers=pair()), set()),
    "two processes without standby queries": (
        scenario(routers=application("r:9465", ["router-active"]) | application("r:9466", ["router-backup"])),
        set(),
    ),
    # Gateway
    "a gateway does not answer": (scenario(gateways=unanswered(gateway())), {"GatewayDown"}),
    "no gateway is left to be scraped": (scenario(gateways={}), {"GatewayDown"}),
    "no broker": (scenario(gateway(waystation_kafka_brokers_up=steady(0))), {"KafkaUnreachable"}),
    "Kafka is slow": (scenario(slow(gateway(), "kafka_produce", GATEWAY, 1.0)), {"PublishesWaitForKafka"}),
    "Kafka refuses": (scenario(gateway(waystation_publishes_refused_total=growing(1))), {"PublishesRefusedByKafka"}),
    "far behind": (scenario(gateway(waystation_consumer_lag_records=steady(20000))), {"DeliveriesLag"}),
    "dropped": (scenario(gateway(waystation_deliveries_dropped_total=growing(1))), {"DeliveriesDropped"}),
    "a long queue": (scenario(gateway(waystation_largest_queue_messages=steady(90000))), {"QueueNearlyFull"}),
    "a large queue": (scenario(gateway(waystation_largest_queue_bytes=steady(230000000))), {"QueueNearlyFull"}),
    "many connections": (scenario(gateway(waystation_connections=steady(9500))), {"ConnectionsNearLimit"}),
    "many files": (scenario(gateway(process_open_fds=steady(60000))), {"OpenFilesNearLimit"}),
    "lost in masses": (
        scenario(gateway(waystation_connections_closed_total=growing(1200))),
        {"ConnectionsLostInMasses"},
    ),
    "a late loop": (scenario(slow(gateway(), "event_loop_lag", GATEWAY, 0.5)), {"EventLoopLate"}),
    "slow checkpoints": (scenario(slow(gateway(), "checkpoint", GATEWAY, 10)), {"CheckpointsSlow"}),
    "a broken spool": (scenario(gateway(waystation_spool_failing=steady(1))), {"SpoolFailing"}),
    "unreadable": (scenario(gateway(waystation_records_quarantined_total=growing(1))), {"RecordsQuarantined"}),
    "each instruction comes once": (
        scenario(gateway(waystation_instruction_copies_dropped_total=growing(0))),
        {"OneRouterOnly"},
    ),
    "no copies, and no traffic": (
        scenario(
            gateway(waystation_instruction_copies_dropped_total=growing(0), waystation_deliveries_total=growing(0)),
        ),
        set(),
    ),
    "an admin without token": (
        scenario(gateway(waystation_admin_requests_refused_total=growing(60))),
        {"AdminRequestsRefused"},
    ),
    "an adapter is dead": (scenario(feed({"active": (0, 1), "backup": (1, 0)})), {"FeedAdapterDead"}),
    "an adapter was stopped": (scenario(feed({"active": (0, 0), "backup": (1, 0)})), set()),
    "a dead adapter has a successor": (scenario(feed({"active": (1, 1), "backup": (1, 0)})), set()),
    "both adapters are dead": (scenario(feed({"active": (0, 1), "backup": (0, 1)})), {"FeedDown"}),
    "both adapters were stopped": (scenario(feed({"active": (0, 0), "backup": (0, 0)})), set()),
    "no pair": (scenario(feed({"active": (1, 0), "backup": (1, 0)}, "refused")), {"FeedPairRefused"}),
    "all shards are served": (scenario(member()), set()),
    "a shard that nobody owns": (scenario(member(unowned=1)), {"ShardWithoutOwner"}),
    "an owner that is silent": (scenario(member(silent=1)), {"ShardWithoutOwner"}),
    "shards that are claimed again and again": (scenario(member(lost_a_minute=3)), {"TakeoversRepeat"}),
    "no standby": (scenario(member(alone=2)), {"StandbysMissing"}),
    "a standby falls behind": (scenario(member(behind_s=30)), {"StandbyBehind"}),
    "a link that is down": (scenario(member(link=0)), {"LinkDown"}),
    "a dispatcher, and clients that leave": (scenario(dispatcher(client_left=60)), set()),
    "no dispatcher": (
        scenario(member() | unanswered(dispatcher(is_up=0), "waystation-dispatcher")),
        {"DispatcherDown"},
    ),
    "a dispatcher that reaches no gateway": (
        scenario(dispatcher(gateways=0, no_gateway=3)),
        {"DispatcherWithoutGateway", "DispatcherRefuses"},
    ),
    "a dispatcher that is full": (scenario(dispatcher(full=3)), {"DispatcherRefuses"}),
    # Routers
    "one role of a process fails": (scenario(routers=stopped(both(), "router-backup")), {"RouterMissing", "QueryDown"}),
    "both roles of a process fail": (scenario(routers=stopped(both(), "router-")), {"NoRouter", "QueryDown"}),
    "the process with both is gone": (scenario(routers={}), {"NoRouter"}),
    "the process with both does not answer": (
        scenario(routers=unanswered(both())),
        {"NoRouter", "SparkApplicationDown"},
    ),
    "one process of the pair is gone": (scenario(routers=alone("active", 9465)), {"RouterMissing"}),
    "one process of the pair does not answer": (
        scenario(routers=alone("active", 9465) | unanswered(alone("backup", 9466))),
        {"RouterMissing", "SparkApplicationDown"},
    ),
    "both queries of one process fail": (
        scenario(routers=stopped(pair(), "router-active")),
        {"RouterMissing", "QueryDown"},
    ),
    "a standby query fails": (scenario(routers=stopped(pair(), "router-active-standby")), {"QueryDown"}),
    "both processes are gone": (scenario(routers={}), {"NoRouter"}),
    "long pauses": (
        scenario(routers=slow(pair(), "router_pause", f'{SPARK}"router:9466",router="backup-standby"', 4)),
        {"RouterPausesLong"},
    ),
    # Ledger, and all applications
    "the ledger does not answer": (scenario(tables=unanswered(ledger())), {"SparkApplicationDown", "NoLedger"}),
    "no ledger is left to be scraped": (scenario(tables={}), {"NoLedger"}),
    "old routes": (scenario(tables=ledger(waystation_routes_as_of_timestamp_seconds=steady(9))), {"RoutesStale"}),
    "a query is down": (scenario(tables=stopped(ledger(), "messages")), {"QueryDown"}),
    "queries fail": (scenario(tables=ledger(waystation_query_failures_total=growing(1))), {"QueryFails"}),
    "no progress": (
        scenario(tables=ledger(waystation_query_last_progress_timestamp_seconds=steady(9))),
        {"QueryStalled"},
    ),
    "falls back": (scenario(tables=ledger(waystation_query_lag_records=growing(10000))), {"QueryLags"}),
    "catches up": (
        scenario(tables=ledger(waystation_query_lag_records=f"2000000-10000x{MINUTES}")),
        set(),
    ),
    "long batches": (scenario(tables=slow(ledger(), "query_batch", MESSAGES, 20)), {"BatchesLongerThanTrigger"}),
    "much state": (scenario(tables=ledger(waystation_query_state_disk_bytes=steady(6e9))), {"StateLarge"}),
    "quarantine": (scenario(tables=ledger(waystation_query_rows_total=growing(60))), {"QuarantineGrows"}),
    "numbers are lost": (scenario(tables=ledger(waystation_feed_lost_numbers=growing(1))), {"FeedNumbersLost"}),
    "copies differ": (scenario(tables=ledger(waystation_feed_differences_total=growing(1))), {"FeedCopiesDiffer"}),
    "a slot is silent": (
        scenario(tables=ledger(**{'waystation_feed_last_append_timestamp_seconds,slot="backup"': steady(9)})),
        {"FeedSlotSilent"},
    ),
    "a feed is silent": (
        scenario(tables=ledger(waystation_feed_last_append_timestamp_seconds=steady(9))),
        set(),
    ),
    "slots are apart": (
        scenario(
            tables=slow(ledger(), "feed_lag", f'{SPARK}"ledger:9467",feed="radar",later="backup"', 20),
        ),
        {"FeedSlotsApart"},
    ),
    "a full heap": (scenario(tables=ledger(waystation_jvm_heap_used_bytes=steady(9e8))), {"HeapNearlyFull"}),
    "much garbage": (scenario(tables=ledger(waystation_jvm_gc_seconds_total=growing(20))), {"GarbageCollectionLong"}),
}


def questions() -> Iterator[dict[str, object]]:
    for name, (series, expected) in draw.some(list(CASES.items()), 20, "cases of alerts"):
        question = {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{MINUTES}m",
            "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(expected)],
        }
        given = [{"series": each, "values": values} for each, values in series.items()]
        yield {"name": name, "interval": "1m", "input_series": given, "promql_expr_test": [question]}


def test_each_alert_fires_in_its_case_and_in_no_other(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": list(questions())}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_case_of_each_alert() -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    assert alerts == {alert for _, expected in CASES.values() for alert in expected}
