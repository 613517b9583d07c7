"""A feed adapter whose network is cut: another one has its slot meanwhile, and nothing is missing (S1, S2); nor does a
subscriber miss anything, which has the other slot (S3, S6)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import draw
from tests.conftest import LocalBroker
from tests.integration.edge.cuttable_way import CuttableWay
from tests.integration.edge.feed_adapter_process import (
    AdapterProcess,
    FeedReader,
    GrowingFile,
    ended,
    hold_and_wait,
    make_topics,
)
from tests.integration.edge.feed_chain import Chain, Pair
from tests.namespaces import Namespace, required

required()

pytestmark = draw.over_processes


@pytest.fixture
def reader(broker: LocalBroker, unique_prefix: str) -> Iterator[FeedReader]:
    found = FeedReader(broker.bootstrap, make_topics(broker.bootstrap, unique_prefix))
    yield found
    found.close()


def test_an_adapter_that_is_cut_off_is_relieved_until_it_is_back(
    broker: LocalBroker, unique_prefix: str, reader: FeedReader, tmp_path: Path
) -> None:
    """It knows nothing of it: its connections stay, and what it had sent arrives when the network is back. Then
    one of the two waits: both have gone on from the log, so neither leaves a gap."""
    file = GrowingFile(tmp_path / "lines.csv")
    port = int(broker.bootstrap.rpartition(":")[2])
    with Namespace("ship") as ship, CuttableWay(ship, port) as way:
        first = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "a", "active", file.source, inside=ship)
        second = AdapterProcess(tmp_path, broker.bootstrap, unique_prefix, "b", "active", file.source)
        with ended(first, second):
            hold_and_wait(first, second, file, reader)
            way.is_cut = True
            file.grow(100)
            reader.until(lambda: reader.state("b") == "up" and 200 in reader.numbers("active"), "takeover")
            way.is_cut = False
            heard = len(reader.beats("a"))
            reader.until(
                lambda: (
                    len(reader.beats("a")) > heard + 10 and {reader.state("a"), reader.state("b")} == {"up", "waiting"}
                ),
                "one of them holds the slot",
            )
            file.grow(100)
            reader.until(lambda: 300 in reader.numbers("active"), "messages after it")
            holder, other = (first, "b") if reader.state("a") == "up" else (second, "a")
            holder.stop()
            reader.until(lambda: reader.state(other) == "up", "the other one")
            file.grow(1)
            reader.until(lambda: 301 in reader.numbers("active"), "the last message")
    assert set(reader.numbers("active")) == set(range(1, 302))


def test_a_subscriber_has_the_other_slot_while_an_adapter_is_cut_off(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """S3, S6: what only that adapter had comes late, when its network is back; everything comes once."""
    make_topics(broker.bootstrap, unique_prefix)
    chain = Chain(broker.bootstrap, unique_prefix, tmp_path / "state")
    port = int(broker.bootstrap.rpartition(":")[2])
    with Namespace("ship") as ship, CuttableWay(ship, port) as way:
        pair = Pair(tmp_path / "pair", broker.bootstrap, unique_prefix, 0, ship)

        def steps() -> tuple[str, int]:
            pair.start()
            pair.send(200)
            chain.until_has(pair)
            chain.until_switched("active", "dead", lambda: setattr(way, "is_cut", True))
            pair.send(300)
            chain.until_switched("active", "alive", lambda: setattr(way, "is_cut", False))
            pair.send(100)
            return pair.stream, chain.until_has(pair)

        with ended(*pair.adapters.values()):
            asyncio.run(chain.run(steps))
    chain.check(pair)
