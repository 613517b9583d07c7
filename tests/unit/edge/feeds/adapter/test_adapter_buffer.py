"""What waits for outputs is bounded, in order, and a place counts once all before it is stored (S2)."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from edge.feeds.adapter.buffer import Buffer, size_of
from edge.feeds.adapter.resume import FilePlace
from feeds.message import FeedMessage


def record(number: int, size: int = 0) -> FeedMessage:
    return FeedMessage("s@0", number, 0, number, 0, "a", bytes(size))


PIECES = st.lists(st.lists(st.integers(0, 900), max_size=9), min_size=1, max_size=9)


@given(PIECES, st.integers(1, 12), st.integers(1, 4_000))
def test_in_order_within_limits_with_places(pieces: list[list[int]], messages: int, size: int) -> None:
    async def scenario() -> None:
        buffer = Buffer(1_000, 1 << 20)
        count, ends = 0, {}
        for at, sizes in enumerate(pieces):
            records = [record(count + number, one) for number, one in enumerate(sizes, 1)]
            count += len(records)
            ends[at] = count
            buffer.put(records, FilePlace(0, 0, at))
        got: list[int] = []
        place = -1
        while place < len(pieces) - 1:
            batch = await buffer.next(messages, size)
            got += [one.sequence for one in batch.records]
            assert len(batch.records) <= messages
            assert sum(map(size_of, batch.records[:-1])) < size, "the last one may be as large as it is"
            if batch.is_whole and batch.place is not None:
                assert batch.place.offset > place
                place = batch.place.offset
                assert len(got) == ends[place], "all before the place is stored, and nothing behind it"
            buffer.stored(batch)
        assert got == list(range(1, count + 1))
        assert len(buffer) == 0

    asyncio.run(scenario())


def test_it_waits_when_full() -> None:
    async def scenario() -> None:
        buffer = Buffer(2, 1 << 20)
        buffer.put([record(one) for one in range(3)])
        assert not buffer.has_capacity
        waiting = asyncio.ensure_future(buffer.capacity())
        batch = await buffer.next(2, 1 << 20)
        await asyncio.sleep(0)
        assert not waiting.done(), "what is on its way still takes space"
        buffer.stored(batch)
        await waiting

    asyncio.run(scenario())
