"""What the metrics of a Spark application say, asked over HTTP after real progress."""

from jobs.observe.jvm import SAMPLE_S, Jvm
from jobs.observe.observer import Observer
from jobs.observe.routing import RouterMetrics, RoutesMetrics
from tests.unit.jobs.observe.jvm import FakeJvm
from tests.unit.jobs.observe.recorded import NOW, measured, observer, progress_of, recorded, samples, tell

REMEMBERED = {"rows": 7, "disk_bytes": 1000, "updated_rows": 6, "removed_rows": 5, "copies": 4}


def expect(this: Observer, **triggers: float) -> None:
    """As the application does once it has its session, without one."""
    for part in this.watchers:
        part.expect(triggers)  # type: ignore[attr-defined]


def test_a_batch_is_counted_with_its_steps_rows_lag_and_state() -> None:
    """All that Spark tells of a batch, in base units."""
    told = progress_of("outcomes")
    with observer() as this:
        for rows in (7, 9):
            tell(this, "outcomes", state={**REMEMBERED, "rows": rows})
        found = samples(this)
    of = ("outcomes",)
    assert found["waystation_query_batches_total", of] == 2
    assert found["waystation_query_batch_seconds_count", of] == 2
    assert found["waystation_query_batch_seconds_sum", of] == 2 * told["batchDuration"] / 1000
    for step, took_ms in told["durationMs"].items():
        assert found["waystation_query_step_seconds_total", ("outcomes", step)] == 2 * took_ms / 1000
    assert found["waystation_query_rows_total", of] == 2 * told["numInputRows"]
    assert found["waystation_query_rows_per_second", of] == told["processedRowsPerSecond"]
    assert found["waystation_query_lag_records", ("outcomes", "ws.progress")] == measured(told)["lag"]
    assert found["waystation_query_last_progress_timestamp_seconds", of] == NOW
    assert found["waystation_query_state_rows", of] == 9
    assert found["waystation_query_state_disk_bytes", of] == 1000
    assert found["waystation_query_state_rows_updated_total", of] == 2 * 6
    assert found["waystation_query_state_rows_removed_total", of] == 2 * 5
    assert found["waystation_query_copies_total", of] == 2 * 4


def test_freshness_is_from_the_youngest_message_to_the_end_of_its_batch() -> None:
    told = progress_of("outcomes") | {
        "timestamp": "2026-01-01T00:00:10.000Z",
        "batchDuration": 2500,
        "eventTime": {"max": "2026-01-01T00:00:08.000Z"},
    }
    found = measured(told)
    assert found["freshness_s"] == 4.5
    idle = measured(told | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}})
    assert "freshness_s" not in idle, "a query that has had no row does not know it"


def test_a_query_that_remembers_nothing_has_no_such_metrics() -> None:
    with observer() as this:
        tell(this, "routes")
        names = {name for name, labels in samples(this) if "routes" in labels}
    assert "waystation_query_batches_total" in names
    assert not {name for name in names if "state" in name or "freshness" in name}


def test_what_a_query_counts_goes_on_over_batches_and_restarts() -> None:
    with observer() as this:
        expect(this, outcomes=10.0)
        assert samples(this)["waystation_query_failures_total", ("outcomes",)] == 0
        for copies in (3, 0, 4):
            tell(this, "outcomes", state={**REMEMBERED, "copies": copies})
            for part in this.watchers:
                part.failed("outcomes", "disk full")
                part.begun("outcomes")
        found = samples(this)
    assert found["waystation_query_copies_total", ("outcomes",)] == 7
    assert found["waystation_query_failures_total", ("outcomes",)] == 3
    assert found["waystation_query_starts_total", ("outcomes",)] == 3
    assert found["waystation_query_trigger_seconds", ("outcomes",)] == 10


def test_a_query_without_work_has_no_lag() -> None:
    with observer() as this:
        tell(this, "messages", lags={"ws.ingress": 5})
        for part in this.watchers:
            part.rested("messages", {"ws.ingress": {}})
        found = samples(this)
    assert found["waystation_query_lag_records", ("messages", "ws.ingress")] == 0
    assert found["waystation_query_rows_per_second", ("messages",)] == 0


def test_a_query_is_up_from_its_first_batch_until_it_fails() -> None:
    with observer() as this:

        def up() -> float:
            return samples(this)["waystation_query_up", ("messages",)]

        expect(this, messages=10.0)
        assert up() == 0
        for part in this.watchers:
            part.begun("messages")
        assert up() == 0
        tell(this, "messages")
        assert up() == 1
        for part in this.watchers:
            part.failed("messages", "disk full")
            part.begun("messages")
        assert up() == 0, "begun again, and nothing done yet"
        for part in this.watchers:
            part.rested("messages", {})
        assert up() == 1, "it has nothing to do, and does that well"


def test_every_recorded_progress_can_be_told() -> None:
    with observer() as this:
        for progress in recorded():
            for watcher in this.watchers:
                watcher.progressed(progress["name"], measured(progress))
        found = samples(this)
    assert found["waystation_query_batches_total", ("router-active-1",)] == 1


def test_routers_tell_of_pauses_and_the_fold_how_far_it_is() -> None:
    with observer("router") as this:
        router, routes = RouterMetrics(this.registry), RoutesMetrics(this.registry, 25.0)
        router.expect("active")
        before = samples(this)
        assert before["waystation_router_pause_seconds_count", ("active",)] == 0
        assert before["waystation_router_realignments_total", ("active",)] == 0
        assert ("waystation_routes_as_of_timestamp_seconds", ()) not in before, "nothing is folded yet"
        router.paused("active", 0.04)
        router.realigned("active")
        routes.folded(1_700_000_001_500_000)
        after = samples(this)
    assert after["waystation_router_pause_seconds_sum", ("active",)] == 0.04
    assert after["waystation_router_realignments_total", ("active",)] == 1
    assert after["waystation_routes_as_of_timestamp_seconds", ()] == 1_700_000_001.5
    assert after["waystation_route_lead_seconds", ()] == 25


def test_the_jvm_is_asked_seldom_however_often_it_is_scraped() -> None:
    fake, jvm = FakeJvm(), Jvm()
    assert list(jvm.collect()) == []
    jvm.sample(0.0)
    jvm.attach(fake.session)
    for now in (0.0, 1.0, SAMPLE_S - 0.1):
        jvm.sample(now)
        found = {sample.name: sample.value for family in jvm.collect() for sample in family.samples}
    assert fake.asked == 1
    jvm.sample(SAMPLE_S)
    assert fake.asked == 2
    assert found["waystation_jvm_heap_used_bytes"] == 10
    assert found["waystation_jvm_heap_max_bytes"] == 30
    assert found["waystation_jvm_gc_seconds_total"] == 0.25
    assert found["waystation_jvm_gc_collections_total"] == 7
    assert found["waystation_jvm_cpu_seconds_total"] > 0
    assert found["waystation_jvm_resident_memory_bytes"] > 0
