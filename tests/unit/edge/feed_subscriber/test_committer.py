"""What is to be stored is written once it was asked for, also if whoever asked is cancelled (S3)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from edge.feed_subscriber.committer import Committer
from edge.feed_subscriber.state import MemoryState, StateChange

CHANGE = StateChange({}, {}, {"ships": 3})


class Store(MemoryState):
    def __init__(self) -> None:
        self.written: list[StateChange] = []

    def commit(self, change: StateChange) -> None:
        self.written.append(change)


def test_a_commit_that_is_cancelled_is_written() -> None:
    """Else what depends on it is acknowledged after the next commit, and after a restart it is nowhere."""

    async def scenario() -> None:
        store, is_free, waiting = Store(), Event(), [CHANGE]
        reported: list[list[StateChange]] = []
        with ThreadPoolExecutor(1) as thread:
            committer = Committer(
                thread,
                store,
                lambda: waiting.pop() if waiting else None,
                1.0,
                lambda: reported.append(list(store.written)),
                lambda error: None,
            )
            thread.submit(is_free.wait)
            asked = asyncio.create_task(committer.durable())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.sleep(0)
            is_free.set()
            await asyncio.wait([asked])
            assert asked.cancelled()
            await committer.durable()
        assert store.written == [CHANGE]
        assert all(written == [CHANGE] for written in reported)

    asyncio.run(scenario())
