"""What a gateway's metrics say, asked over HTTP."""

import asyncio
from pathlib import Path

import pytest

from gateway.host.close_reasons import CLOSE_REASONS
from gateway.observe.counts import count_families
from gateway.observe.session_stats import SLICE, SessionStatsCollector, slices
from gateway.shard.arrivals import Arrival
from mqtt.packets import Connect, Disconnect, Publish, Subscribe, Subscription
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.observe.observed import ObservedHarness, observed, run_real, until
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run


def test_positions_and_lag_are_where_the_shards_have_come_on_egress(tmp_path: Path) -> None:
    """`waystation status` reckons the gateway's lag from them."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            egress = here.harness.topics.egress
            before = await here.samples()
            for shard in here.harness.home.states:
                assert before["waystation_position", (str(shard.number), egress)] == 0
                assert ("waystation_consumer_lag_records", (str(shard.number), egress)) not in before
                here.kafka.ends[egress, shard.number] = 10
                shard.position = 7 + shard.number
            after = await here.samples()
            assert after["waystation_position", ("1", egress)] == 8
            assert after["waystation_consumer_lag_records", ("0", egress)] == 3

    run_real(scenario())


def test_traffic_sessions_and_outcomes(tmp_path: Path) -> None:
    """By QoS, bearer and protocol; counters are there from the start, at 0."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            nothing = await here.samples()
            assert nothing["waystation_deliveries_total", ("delivered",)] == 0
            assert nothing["waystation_publishes_refused_total", ("by_kafka",)] == 0
            assert nothing["waystation_sessions", ("connected",)] == 0
            one, two = Wire(here.hosts).send(connect("one")), Wire(here.hosts).send(connect("two"))
            await turn()
            one.send(Subscribe(1, [Subscription("a/#", 1), Subscription("@two", 1)]))
            await turn()
            two.send(Publish("a/b", b"12345", 1, packet_id=3), Publish("a/c", b"", 0))
            await turn()
            two.lose()
            after = await here.samples()
            assert after["waystation_received_publishes_total", ("0",)] == 1
            assert after["waystation_received_publishes_total", ("1",)] == 1
            assert after["waystation_sent_publishes_total", ("1",)] == 1
            assert after["waystation_publishes_stored_total", ()] == 2
            assert after["waystation_unacknowledged_messages", ()] == 1
            assert after["waystation_received_packets_total", ()] == 5
            assert after["waystation_sent_packets_total", ()] == 6
            assert after["waystation_received_bytes_total", ()] > after["waystation_sent_bytes_total", ()] > 0
            assert after["waystation_sessions", ("offline",)] == 1
            assert after["waystation_clients", ("tcp", "mqtt5")] == 1
            assert after["waystation_connections", ()] == 1
            assert after["waystation_subscriptions", ()] == 1
            assert after["waystation_routes", ()] == 1
            assert after["waystation_subscriptions_refused_total", ("not_authorized",)] == 1
            assert after["waystation_connections_closed_total", ("connection_lost",)] == 1
            assert after["waystation_presence_events_total", ("lost",)] == 1

    run_real(scenario())


def test_every_series_is_there_from_the_start(tmp_path: Path) -> None:
    """At 0, so that its first increase is seen, and a board shows 0 and not "no data": what clients do afterwards makes
    no series. But for what is not known before, such as where a partition ends."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            before = await here.samples()
            assert [name for name in before if name[0] == "waystation_clients" and not before[name]]
            for number in range(4):
                version = 4 + number % 2
                wire = Wire(here.hosts, version).send(Connect(f"c{number}", version, False))
                await turn()
                wire.send(Subscribe(1, [Subscription("a/#", 1), Subscription("@x", 1), Subscription("a/" * 40, 1)]))
                await turn()
                wire.send(*(Publish(topic, b"1234", qos, packet_id=7) for topic in ("a/b", "$SYS/x") for qos in (0, 1)))
                await turn()
                wire.lose() if number else wire.send(Disconnect())
            await turn()
            after = await here.samples()
            assert set(after) - set(before) == set()

    run_real(scenario())


@pytest.mark.parametrize("reason", sorted(CLOSE_REASONS))
def test_every_reason_to_end_has_its_series(reason: str) -> None:
    families = {family.name: family for family in count_families({})}
    samples = families["waystation_connections_closed"].samples
    assert [s.value for s in samples if s.labels["reason"] == reason and s.name.endswith("_total")] == [0]


def test_every_scrape_has_the_process_and_the_durations(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:

            async def measured() -> bool:
                found = await here.samples()
                counts = ("waystation_event_loop_lag_seconds_count", "waystation_checkpoint_seconds_count")
                return all(found[name, ()] for name in counts)

            await until(measured)
            found = await here.samples()
            names = {name for name, _ in found}
            assert {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"} <= names
            assert "python_gc_collections_total" in names
            assert found["waystation_kafka_produce_seconds_count", ()] == 0
            assert found["waystation_spool_rows", ()] == 0
            assert found["waystation_spool_file_bytes", ()] > 0
            assert found["waystation_gateway_info", ("gateway-1", "1.2.3")] == 1

    run_real(scenario())


def test_a_word_without_a_name_of_its_own_is_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.harness.node.counts["something_new"] += 2
            here.hosts.counts["something_new"] += 1
            assert (await here.samples())["waystation_other_events_total", ("something_new",)] == 3

    run_real(scenario())


def test_a_census_lets_others_have_their_turn_and_is_taken_once_for_all_who_ask(tmp_path: Path) -> None:
    """50,000 sessions must not hold up a message."""

    async def scenario() -> None:
        harness = await ObservedHarness(tmp_path, {}).start()
        for number in range(3 * SLICE):
            await harness.home.attach(arrival(number), QuietLink())
        taker = SessionStatsCollector(lambda: harness.home.states)
        first, second = await asyncio.gather(taker.take(), taker.take())
        assert first is second
        assert first.connected == 3 * SLICE
        sizes = [len(sessions) async for sessions in slices(harness.home.states)]
        assert sum(sizes) == 3 * SLICE
        assert max(sizes) <= SLICE
        await harness.stop()

    run(scenario())


def arrival(number: int) -> Arrival:
    return Arrival(f"c{number}", True, 0, None, 10, "peer", "mqtt5")


class QuietLink:
    """A client that takes nothing."""

    writable = False

    def deliver(self, *_: object) -> bool:
        return True

    def release(self, *_: object) -> None: ...

    def answer(self, *_: object) -> None: ...

    def complete(self, *_: object) -> None: ...

    def disconnect(self, *_: object) -> None: ...


def test_gateways_are_counted_by_what_they_say_and_when(tmp_path: Path) -> None:
    """G2: the states, the silent ones, and how old each last heartbeat is."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            assert (await here.samples())["waystation_members", ("silent",)] == 0
            now = here.harness.loop_time()
            here.members.apply("a", heartbeat(), now)
            here.members.apply("b", heartbeat(), now - 100)
            here.members.apply("c", heartbeat(state="gone"), now)
            here.members.apply("d", heartbeat(), None)
            found = await here.samples()
            states = ("joining", "up", "draining", "gone", "silent")
            assert [found["waystation_members", (state,)] for state in states] == [0, 1, 0, 1, 2]
            ages = {labels[0]: age for (name, labels), age in found.items() if name.endswith("heartbeat_age_seconds")}
            assert ages.keys() == {"a", "b"}
            assert ages["b"] - ages["a"] == pytest.approx(100)

    run_real(scenario())


def test_each_help_text_can_be_read_alone() -> None:
    """Tools show it beside the name, without what stands before it."""
    texts = [family.documentation for family in count_families({})]
    assert len(texts) > 60
    assert [text for text in texts if text[0].islower() or text.startswith("The same")] == []
