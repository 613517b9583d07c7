"""Batches that wait for a free slot (`ledger.batches_at_once`)."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import pytest

from pipelines.ledger.batch_limiter import BatchLimiter

BATCH: Any = None
THREADS = 6
DEADLINE_S = 20.0


@pytest.mark.parametrize("at_once", [1, 2, THREADS])
def test_no_more_than_so_many_at_once_and_each_runs(at_once: int) -> None:
    lock, full = Lock(), Event()
    now, most, done = 0, 0, 0

    def write(_batch: Any, _number: int) -> None:
        nonlocal now, most, done
        with lock:
            now += 1
            most = max(most, now)
            if now == at_once:
                full.set()
        assert full.wait(DEADLINE_S), "as many as may run do"
        with lock:
            now -= 1
            done += 1

    limited = BatchLimiter(at_once).limited(write)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: limited(BATCH, number), range(THREADS)))
    assert (most, done) == (at_once, THREADS)


def test_a_batch_that_fails_frees_its_slot() -> None:
    limiter, written = BatchLimiter(1), []

    def fail(_batch: Any, _number: int) -> None:
        raise ValueError("disk full")

    for _ in range(2):
        with pytest.raises(ValueError, match="disk full"):
            limiter.limited(fail)(BATCH, 1)
    limiter.limited(lambda _, number: written.append(number))(BATCH, 2)
    assert written == [2]


@pytest.mark.parametrize("how", ["waited long enough", "the application ends"])
def test_one_that_hangs_holds_up_nobody_for_ever(how: str) -> None:
    limiter = BatchLimiter(1, 0.01 if how == "waited long enough" else DEADLINE_S)
    hangs, goes_on, written = Event(), Event(), Event()

    def hang(_batch: Any, _number: int) -> None:
        hangs.set()
        goes_on.wait(DEADLINE_S)

    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(limiter.limited(hang), BATCH, 1)
        assert hangs.wait(DEADLINE_S)
        other = pool.submit(limiter.limited(lambda _, number: written.set()), BATCH, 2)
        if how == "the application ends":
            assert not written.is_set()
            limiter.end(1)
        assert written.wait(DEADLINE_S / 2)
        assert not hanging.done()
        goes_on.set()
        other.result()
        hanging.result()
