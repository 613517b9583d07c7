"""The measuring clients of a site: how packets are found in bytes, and what counts as silence."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, lists

from bench.cluster_clients import Arrival, Listener, packets
from bench.cluster_fleet import names_of
from mqtt.encode import encode_publish
from schemas.identity import shard_of


@given(lists(binary(max_size=300), max_size=5), integers(0, 2_000))
def test_packets_are_found_whole_however_bytes_are_cut(payloads: list[bytes], cut: int) -> None:
    whole = [encode_publish(b"a/b", payload, 1, False, False, n + 1, None) for n, payload in enumerate(payloads)]
    data = b"".join(whole)
    found: list[bytes] = []
    rest = b""
    for part in (data[:cut], data[cut:]):
        rest += part
        end = 0
        for _, body, end in packets(rest):
            found.append(rest[body:end])
        rest = rest[end:]
    assert rest == b""
    assert [packet[-len(body) :] for packet, body in zip(whole, found, strict=True)] == found


def listener(*arrivals: Arrival) -> Listener:
    made = Listener("listener", lambda: 0)
    made.arrivals += arrivals
    return made


def test_the_next_message_counts_once_the_client_is_back() -> None:
    """What had been on its way to the connection that ended does not."""
    made = listener(Arrival(1.0, 0, 1), Arrival(2.01, 0, 1), Arrival(2.3, 0, 2), Arrival(2.4, 0, 2))
    assert made.next_after(2.0, 1) == pytest.approx(0.3)
    with pytest.raises(RuntimeError, match="nothing after its connection 2"):
        made.next_after(2.0, 2)


@given(lists(integers(0, 100), max_size=20))
def test_silence_reaches_from_one_end_to_the_other(at: list[int]) -> None:
    """Messages of others, and those outside of the time, do not end it."""
    times = sorted(at)
    made = listener(*(Arrival(float(moment), 1, 1) for moment in times), Arrival(50.0, 2, 1))
    inside = [moment for moment in times if 10 <= moment <= 90]
    assert made.silence_s(10, 90, {1}) == max(after - before for before, after in pairwise([10, *inside, 90]))


@given(integers(1, 32))
def test_there_is_a_client_for_each_shard(shards: int) -> None:
    assert [shard_of(name, shards) for name in names_of(range(shards), shards)] == list(range(shards))


def test_a_client_that_cannot_choose_a_gateway_says_why() -> None:
    """And does not wait until its time is over."""

    def door() -> int:
        raise LookupError("no gateway is up")

    async def come() -> None:
        with pytest.raises(LookupError, match="no gateway is up"):
            await Listener("listener", door).come()

    asyncio.run(come())
