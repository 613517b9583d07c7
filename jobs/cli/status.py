"""`status`: every process, gateway, streaming query and topic of a stack, for people or as JSON; without a stack, the
queries of submitted applications as these report them."""

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from jobs.cli.context import Shared, shared
from jobs.cli.gateway_api import GatewayApi, api_of
from jobs.cli.watch import watch
from jobs.errors import GatewayApiError, StackError, TopicsError
from jobs.observe.lags import TopicLag, gateway_positions, lowest, query_positions, topic_lags, with_lags
from jobs.output import cell, errors, json_text, output
from jobs.stack.gateways import metrics_listeners
from jobs.stack.state import ProcessState, StackState, state_if_running, why_no_stack
from jobs.stack.topics import admin_client, topic_ends
from jobs.text_tables import Column, Form
from pipelines.streams import STANDBY
from schemas.readiness import read_json
from schemas.settings import Settings, load_settings

SAMPLE_S = 0.3
BROKER_S = 3.0
"""How long the broker may take to answer: without it the rest is shown."""
MEGABYTE = 1_000_000


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(
    context: typer.Context,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: processes, gateways, listeners, queries, topics.")
    ] = False,
    watching: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two refreshes of --watch.")] = 2.0,
) -> None:
    """Show the running stack: processes and their load, readiness of the gateways, streaming queries, and topics with
    the lag of their consumers.

    Lag is in records: the topic's current end minus the consumer's position. The table shows the largest lag of each
    topic, --json shows all. Queries report their position at the end of a batch.

    If no stack runs in the data directory on this machine, the command shows the queries that applications have
    reported there (`status/`). It then takes the ends of topics from the broker kafka.bootstrap.

    Examples:

        waystation status
        waystation status --watch --interval 5
        waystation status --json | python3 -m json.tool
    """
    options = shared(context)
    if watching:
        watch(lambda: _read(options), lambda report: _print(report, as_json), interval, clear=not as_json)
    else:
        _print(_read(options), as_json)


def _read(options: Shared) -> dict[str, Any]:
    """The status of the data directory. Raises StackError if there is nothing to report."""
    data = options.data()
    state = state_if_running(data)
    written = queries(data / "status", time.time())
    if state is not None:
        report = of_stack(state, options.environ, written)
    elif written:
        settings = options.settings()
        report = of_applications(settings, written)
        broker = settings.kafka.bootstrap
        silent = "" if report["topics"] else ", which does not answer or has no topics"
        errors().print(
            f"no stack is running in {data}: showing the queries that applications have reported there, and the "
            f"topics of kafka.bootstrap = {broker}{silent}"
        )
    else:
        raise StackError(why_no_stack(data))
    return report


def _print(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_text(report))
    else:
        _show(report)


def of_stack(state: StackState, environ: Mapping[str, str], written: list[dict[str, Any]]) -> dict[str, Any]:
    """The status of a running stack."""
    settings = load_settings([Path(path) for path in state.configuration], environ)
    found = present(written, settings, {process.name for process in state.processes})
    topics = topic_lags_of(state.bootstrap, {}, settings.kafka.prefix, found, metrics_listeners(state).values())
    return {
        "ready": state.ready,
        "processes": processes(state),
        "gateways": gateways(state),
        "listeners": state.listeners,
        "queries": [with_lags(query, topics) for query in found],
        "topics": [topic.report() for topic in topics],
    }


def of_applications(settings: Settings, written: list[dict[str, Any]]) -> dict[str, Any]:
    """The status without a stack: readiness is unknown, and there are no processes to measure."""
    kafka, found = settings.kafka, present(written, settings)
    topics = topic_lags_of(kafka.bootstrap, kafka.client, kafka.prefix, found)
    return {
        "ready": None,
        "processes": [],
        "gateways": [],
        "listeners": {},
        "queries": [with_lags(query, topics) for query in found],
        "topics": [topic.report() for topic in topics],
    }


def present(written: list[dict[str, Any]], settings: Settings, parts: set[str] | None = None) -> list[dict[str, Any]]:
    """The queries that exist now. Nobody deletes the file of a query that no longer exists, such as a standby query
    after `stack.router_processes` has become 1. `parts`: those of the stack, if one runs."""
    return [
        query
        for query in written
        if (parts is None or query.get("part") in parts)
        and (settings.router.standby_query or not query["query"].endswith(STANDBY))
    ]


def processes(state: StackState) -> list[dict[str, Any]]:
    """Every process with the load of all it has started: `cpu` in cores, over a short sample; `memory_mb` resident."""
    before = {process.pid: _cpu_s(process) for process in state.processes}
    began = time.monotonic()
    time.sleep(SAMPLE_S)
    took = time.monotonic() - began
    now = time.time()
    return [
        {
            "name": process.name,
            "pid": process.pid,
            "state": process.state if process.identity.alive() else "restarting",
            "uptime_s": round(now - process.started_at, 1),
            "restarts": process.restarts,
            "memory_mb": round(sum(_each(process, lambda p: p.memory_info().rss)) / MEGABYTE),
            "cpu": round(max(0.0, _cpu_s(process) - before[process.pid]) / took, 2),
        }
        for process in state.processes
    ]


def gateways(state: StackState) -> list[dict[str, Any]]:
    """Each gateway of the stack: `ready`, and `faults` of the parts that are not ready; a gateway that does not answer
    has that as its fault."""
    return [
        ({"name": name} if name else {}) | _gateway(api_of(listener))
        for name, listener in metrics_listeners(state).items()
    ]


def _gateway(url: str) -> dict[str, Any]:
    try:
        report = GatewayApi(url).readiness()
        faults = {name: part["detail"] for name, part in report["parts"].items() if not part["ready"]}
    except (GatewayApiError, KeyError, TypeError, AttributeError) as error:
        return {"url": url, "ready": False, "faults": {"http": str(error)}}
    return {"url": url, "ready": report["ready"], "faults": faults}


def queries(directory: Path, now: float) -> list[dict[str, Any]]:
    """Every streaming query as last reported by its application, with its age `age_s`."""
    found = [read_json(path) for path in sorted(directory.glob("*.json"))]
    return [{**query, "age_s": round(now - query.get("at_ms", 0) / 1000, 1)} for query in found if query]


def topic_lags_of(
    bootstrap: str,
    client: Mapping[str, str],
    prefix: str,
    queries: list[dict[str, Any]],
    gateways: Collection[str] = (),
) -> list[TopicLag]:
    """Every topic under `prefix` with the lag of each consumer; `gateways` report their positions at their metrics
    addresses, and count as one consumer, because they share the partitions. Empty while the broker does not answer.

    Positions are read before ends: a lag may be too large by what arrived between, never too small.
    """
    consumers = {query["query"]: query_positions(query) for query in queries}
    if gateways:
        consumers["gateway"] = lowest(gateway_positions(address) for address in gateways)
    try:
        ends = topic_ends(admin_client(bootstrap, client), prefix, BROKER_S)
    except TopicsError:
        return []
    return topic_lags({end.name: end.end_offsets for end in ends}, consumers)


def _each(process: ProcessState, measure: Any) -> list[Any]:
    """A measure of a process and of all it has started; only of those still alive."""
    if not process.identity.alive():
        return []
    measured = []
    try:
        leader = psutil.Process(process.pid)
        for one in [leader, *leader.children(recursive=True)]:
            measured.append(measure(one))
    except psutil.Error:
        pass
    return measured


def _cpu_s(process: ProcessState) -> float:
    return float(sum(_each(process, lambda p: sum(p.cpu_times()[:2]))))


def _show(report: dict[str, Any]) -> None:
    if report["ready"] is not None:
        _show_stack(report)
    _show_queries(report)


def _show_stack(report: dict[str, Any]) -> None:
    terminal = output()
    rows = [
        (
            *(one["name"], one["state"], str(one["pid"]), f"{one['uptime_s']:.0f} s", str(one["restarts"])),
            *(f"{one['memory_mb']} MB", f"{one['cpu']:.2f}"),
        )
        for one in report["processes"]
    ]
    headings = ("name", "state", "pid", "uptime", "restarts", "memory", "cpu")
    terminal.show_table(_columns(headings, texts=2), rows, title="processes")

    gateways = []
    for one in report["gateways"]:
        faults = "; ".join(f"{part}: {fault}" for part, fault in one["faults"].items())
        gateways.append((cell(one.get("name")), cell(one["url"]), "yes" if one["ready"] else "no", cell(faults)))
    columns = (Column("gateway"), Column("address"), Column("ready"), Column("problem", is_prose=True))
    terminal.show_table(columns, gateways, title="gateways")


def _show_queries(report: dict[str, Any]) -> None:
    terminal = output()
    rows = [
        [cell(one["query"]), _cell(one.get("part")), *(show(one.get(name)) for name, show in _FIGURES.values())]
        for one in report["queries"]
    ]
    columns = _columns(("query", "part", *_FIGURES), texts=2)
    terminal.show_table(columns, rows, title="streaming queries", form=Form.SPLIT_IF_WIDE)

    failed = [(cell(one["query"]), _cell(one["error"])) for one in report["queries"] if one.get("error")]
    if failed:
        columns = [Column("query"), Column("error", is_prose=True)]
        terminal.show_table(columns, failed, title="failed queries")

    topics = []
    for one in report["topics"]:
        slowest = next(iter(one["lags"]), "") if one["lag"] else ""
        figures = (str(one["partitions"]), str(one["end_offset"]), _cell(one["lag"]))
        topics.append((cell(one["name"]), *figures, cell(slowest)))
    columns = [*_columns(("topic", "partitions", "end offset", "largest lag")), Column("consumer")]
    terminal.show_table(columns, topics, title="topics", form=Form.SPLIT_IF_WIDE)

    if report["ready"] is None:
        return
    addresses = [(cell(name), cell(address)) for name, address in sorted(report["listeners"].items())]
    terminal.show_table(("listener", "address"), addresses, title="listeners")


def _columns(headings: Sequence[str], texts: int = 1) -> list[Column]:
    """The first `texts` columns are text, the others numbers."""
    return [Column(heading, is_number=n >= texts) for n, heading in enumerate(headings)]


def _cell(value: Any) -> str:
    return cell(f"{value:.1f}" if isinstance(value, float) else value)


def _measure(value: float | None, unit: str = "") -> str:
    """With at least three digits."""
    return "" if value is None else f"{value:.{1 if value < 100 else 0}f}{unit}"


def _seconds(value: float | None) -> str:
    return _measure(value, " s")


def _batch(ms: int | None) -> str:
    return "" if ms is None else _seconds(ms / 1000)


def _state(state: dict[str, Any] | None) -> str:
    return _measure(state["disk_bytes"] / MEGABYTE, " MB") if state else ""


_FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "batch": ("batch_id", _cell),
    "duration": ("batch_ms", _batch),
    "rows/s": ("rows_per_s", _measure),
    "lag": ("lag", _cell),
    "freshness": ("freshness_s", _seconds),
    "state": ("state", _state),
    "failures": ("failures", _cell),
    "updated": ("age_s", _seconds),
}
"""Columns of a streaming query: heading, key in its status file, format."""
