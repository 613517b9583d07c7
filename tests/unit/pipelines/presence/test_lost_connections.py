"""The ends that the ledger adds where a gateway was lost: one a connection, whatever is cut into batches (R12)."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.presence import lost_connections
from pipelines.presence.attachments import Known, ReportedEvent, after, known_from, revised, state_of
from schemas.states import GatewayState
from tests.unit.pipelines.presence.test_attachments import MOST, reported

LIFE = st.lists(st.sampled_from(["connected", "heartbeat", "disconnected"]), min_size=1, max_size=3)


def log_of(boots: list[list[list[str]]]) -> list[ReportedEvent]:
    """The events of a client as they stand on its partition: by boot of the gateway, by connection, each with a number;
    epochs grow."""
    lives = [(boot, events) for boot, of_boot in enumerate(boots) for events in of_boot]
    return [
        reported(epoch, seq, event, boot=boot)
        for epoch, (boot, events) in enumerate(lives)
        for seq, event in enumerate(events)
    ]


@given(st.lists(st.lists(LIFE, max_size=2), max_size=5), st.data())
def test_a_connection_without_an_end_gets_one_by_the_next_boot(
    boots: list[list[list[str]]], data: st.DataObject
) -> None:
    """However the log is cut into batches, in whatever order a batch is, and if one is repeated after a crash."""
    log = log_of(boots)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    known, found = list[Known](), list[tuple[int, int]]()
    for first, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        batch = data.draw(st.permutations(log[first:end]))
        repeated, once = lost_connections.superseded(known, batch * 2), lost_connections.superseded(known, batch)
        assert repeated == once
        found += [(last.boot, last.epoch) for last, _ in once]
        known = after(known, batch, MOST)
        assert lost_connections.superseded(known, batch) == [], "what is read again from before adds nothing"
    last = {(event.boot, event.epoch): event for event in log}
    newest = max((event.boot for event in log), default=0)
    expected = [life for life, event in last.items() if event.event != "disconnected" and life[0] < newest]
    assert sorted(found) == sorted(life for life in expected if life == max(o for o in last if o[0] == life[0]))


def test_a_gateway_that_is_gone_ends_its_connections_and_takes_that_back() -> None:
    """Of a client that says nothing, and of one that is reported in the same batch: the same events, by number too."""
    known = after([], [reported(1, 0, "connected")], MOST)
    alive = {"g": GatewayState(gateway="g", alive=True, boot=5, at_ms=10)}
    gone = {"g": GatewayState(gateway="g", alive=False, boot=5, at_ms=20)}
    published = state_of("c", known, alive)
    (lost,) = lost_connections.revised(published, revised(published, gone), gone)
    assert [lost] == list(lost_connections.of_gateways("c", known, known, alive, gone))
    assert (lost.event, lost.reason, lost.epoch, lost.seq, lost.at_us) == ("lost", "gateway_lost", 1, 20_000, 20_000)
    published = revised(published, gone)
    back = {"g": GatewayState(gateway="g", alive=True, boot=5, at_ms=30)}
    (again,) = lost_connections.revised(published, revised(published, back), back)
    assert (again.event, again.reason, again.epoch, again.at_us) == ("connected", "gateway_back", 1, 30_000)
    anew = {"g": GatewayState(gateway="g", alive=True, boot=6, at_ms=30)}
    assert list(lost_connections.revised(published, revised(published, anew), anew)) == [], "it was said"
    assert list(lost_connections.of_gateways("c", known_from(published), known_from(published), gone, anew)) == []


def test_who_came_by_a_gateway_that_is_gone_has_an_end_at_once() -> None:
    """Its event was late."""
    gone = {"g": GatewayState(gateway="g", alive=False, boot=5, at_ms=20)}
    known = after([], [reported(1, 0, "connected")], MOST)
    assert [event.event for event in lost_connections.of_gateways("c", [], known, gone, gone)] == ["lost"]
    ended = after(known, [reported(1, 1, "disconnected")], MOST)
    assert list(lost_connections.of_gateways("c", [], ended, {}, gone)) == []
