"""What the keeper of leases is told of standbys (Q7, Q9)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.cluster.lease_messages import StandbyNotReady, StandbyReady
from gateway.leases.standby_events import StandbyEvents
from schemas.members import Heartbeat
from tests.unit.gateway.members.heartbeat_records import heartbeat

OWNED = {0: 3, 2: 7}


def test_ready_and_not_ready_are_told_once() -> None:
    events = StandbyEvents("a")
    assert events.heard("b", heartbeat(seq=1, warm=[0, 1]), OWNED) == [StandbyReady(0, "b")]
    assert events.heard("b", heartbeat(seq=2, warm=[0]), OWNED) == []
    assert events.heard("b", heartbeat(seq=3, warm=[2]), OWNED) == [StandbyNotReady(0, "b"), StandbyReady(2, "b")]
    assert events.heard("b", heartbeat(seq=2, warm=[0]), OWNED) == [], "it is older"
    assert events.heard("a", heartbeat(seq=9, warm=[0]), OWNED) == [], "its own"


def test_another_process_is_not_warm_because_the_one_before_was() -> None:
    events = StandbyEvents("a")
    events.heard("b", heartbeat(boot=1, seq=50, warm=[0]), OWNED)
    assert events.heard("b", heartbeat(boot=2, seq=0, state="joining"), OWNED) == [StandbyNotReady(0, "b")]
    assert events.heard("b", heartbeat(boot=1, seq=51, warm=[0]), OWNED) == []
    assert events.heard("b", heartbeat(boot=2, seq=1, warm=[0]), OWNED) == [StandbyReady(0, "b")]


def test_who_leaves_is_not_ready() -> None:
    events = StandbyEvents("a")
    events.heard("b", heartbeat(seq=1, warm=[0]), OWNED)
    assert events.heard("b", heartbeat(seq=2, state="draining", warm=[0]), OWNED) == [StandbyNotReady(0, "b")]
    events.heard("c", heartbeat(seq=1, warm=[2]), OWNED)
    assert events.forget("c", OWNED) == [StandbyNotReady(2, "c")]
    assert events.forget("c", OWNED) == []


HEARTBEATS = st.builds(
    lambda name, boot, warm, state: (name, boot, sorted(warm), state),
    st.sampled_from("bc"),
    st.integers(1, 2),
    st.sets(st.integers(0, 3)),
    st.sampled_from(["joining", "up", "draining", "gone"]),
)
OWNERSHIPS = st.dictionaries(st.integers(0, 3), st.booleans())
"""The shards owned, and whether that is so in a new epoch."""


@given(st.lists(st.tuples(HEARTBEATS, OWNERSHIPS), max_size=20))
def test_who_keeps_the_events_of_an_epoch_knows_who_is_warm(
    said: list[tuple[tuple[str, int, list[int], str], dict[int, bool]]],
) -> None:
    """As the keeper does: it forgets all when a shard begins in another epoch."""
    events, owned = StandbyEvents("a"), dict[int, int]()
    ready: dict[int, set[str]] = {}
    newest: dict[str, Heartbeat] = {}
    for seq, ((name, boot, warm, state), owned_by_now) in enumerate(said):
        owned_now = {shard: seq if is_new else owned.get(shard, seq) for shard, is_new in owned_by_now.items()}
        ready = {shard: ready.get(shard, set()) if owned.get(shard) == e else set() for shard, e in owned_now.items()}
        owned, record = owned_now, heartbeat(boot=boot, seq=seq, state=state, warm=warm)
        for event in events.heard(name, record, owned):
            if isinstance(event, StandbyReady):
                ready[event.shard].add(event.name)
            else:
                ready[event.shard].discard(event.name)
        if name in newest and newest[name].boot > boot:
            continue  # it says nothing
        newest[name] = record
        serves = newest[name].state in ("joining", "up")
        for shard in owned:
            assert (name in ready[shard]) == (serves and shard in newest[name].warm), (seq, name, shard)
