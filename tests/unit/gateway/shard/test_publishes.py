"""Up to where a shard's publishes are known: never beyond one that is on its way, as far as possible else (G8)."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.publishes import InboundPosition, PublishesInFlight

SHARDS, PARTITIONS = 3, 2
steps = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "acknowledge", "look"]),
        st.integers(0, SHARDS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    max_size=60,
)


@given(steps)
def test_nothing_on_its_way_is_passed(story: list[tuple[str, int, int]]) -> None:
    process = PublishesInFlight()
    shards = [InboundPosition(process) for _ in range(SHARDS)]
    on_way: list[deque[tuple[int, int]]] = [deque() for _ in range(PARTITIONS)]
    ends = [0] * PARTITIONS
    for what, shard, partition in story:
        if what == "publish":
            shards[shard].begun(partition)
            on_way[partition].append((shard, ends[partition]))
            ends[partition] += 1
        elif what == "acknowledge" and on_way[partition]:
            owner, offset = on_way[partition].popleft()
            shards[owner].ended(partition, offset)
        elif what == "look":
            for position in shards:
                position.nothing_before(dict(enumerate(ends)))
        for number, position in enumerate(shards):
            for p in range(PARTITIONS):
                own = [offset for owner, offset in on_way[p] if owner == number]
                assert position.position().get(p, 0) <= min(own, default=ends[p])
    for partition in range(PARTITIONS):
        while on_way[partition]:
            owner, offset = on_way[partition].popleft()
            shards[owner].ended(partition, offset)
    for position in shards:
        position.nothing_before(dict(enumerate(ends)))
        assert [position.position().get(p, 0) for p in range(PARTITIONS)] == ends


def test_a_refused_publish_is_on_its_way_no_more() -> None:
    process = PublishesInFlight()
    first, second = InboundPosition(process), InboundPosition(process)
    first.begun(0)
    second.begun(0)
    second.ended(0, 7)
    assert first.position() == {}
    first.ended(0, None)
    assert first.position() == {0: 8}


def test_bytes_on_their_way() -> None:
    """Of all shards, whether Kafka has taken a publish or not."""
    process = PublishesInFlight()
    first, second = InboundPosition(process), InboundPosition(process)
    first.begun(0, 10)
    second.begun(0, 5)
    second.begun(1, 2)
    first.ended(0, 0, 10)
    second.ended(1, None, 2)
    assert process.bytes_in_flight == 5
