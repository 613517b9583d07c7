"""Work that ends although whoever waits for it is cancelled."""

import asyncio

import pytest

from edge.completion import completed


@pytest.mark.parametrize("cancellations", [1, 2, 3])
def test_whoever_is_cancelled_still_waits_for_the_end(cancellations: int) -> None:
    async def run() -> None:
        may_end, has_ended = asyncio.Event(), False

        async def work() -> None:
            nonlocal has_ended
            await may_end.wait()
            has_ended = True

        waiting = asyncio.create_task(completed(work()))
        for _ in range(cancellations):
            await asyncio.sleep(0)
            waiting.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        may_end.set()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert has_ended

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_result_and_an_error() -> None:
    async def fails() -> None:
        raise OSError("broken")

    async def run() -> None:
        assert await completed(asyncio.sleep(0, 7)) == 7
        with pytest.raises(OSError, match="broken"):
            await completed(fails())

    asyncio.run(run())
