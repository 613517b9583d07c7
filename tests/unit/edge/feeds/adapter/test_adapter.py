"""An adapter beside many others, without a broker (S1, S2)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.feeds.adapter import adapter as module
from edge.feeds.adapter.adapter import ADAPTERS_MAX, Adapter
from edge.feeds.adapter.registry_link import Told
from edge.feeds.adapter.settings import KafkaSection
from edge.feeds.adapter.settings_rules import BEAT_S
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import AdapterBeat, RegistryKey
from tests.unit.edge.feeds.adapter.adapter_data import written_settings
from tests.unit.gateway.shard.virtual_time import run

NMEA = 'format="nmea0183"\nname="src"\nfrom="tcp://h:1"'
SOURCE = FeedSource(format=SourceFormat.NMEA0183, name="src")


class Link:
    """What an adapter is told of the topic, and what it says there."""

    made: "Link"

    def __init__(self, _: KafkaSection, on_records: Callable[[list[Told], bool], None]) -> None:
        self.tell, self.said = on_records, list[AdapterBeat]()
        Link.made = self

    def beat(self, _: RegistryKey, beat: AdapterBeat) -> None:
        self.said.append(beat)


def beat_of(feed: str, name: str, boot: int, seq: int) -> Told:
    beat = AdapterBeat(boot=boot, seq=seq, slot="active", state="up", at_us=0, machine="m", source=SOURCE)
    return RegistryKey("adapter", feed, name), beat


def test_adapters_of_other_feeds_displace_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many an installation has: the holder of the slot is known, so this one waits."""
    monkeypatch.setattr(module, "RegistryLink", Link)
    settings = written_settings(tmp_path, NMEA)
    feed, name = settings.feed.name, settings.feed.adapter

    async def scenario() -> None:
        Adapter(settings, boot=5)
        for seq in range(10):
            others = [beat_of(f"feed-{number}", "a", 1, seq) for number in range(ADAPTERS_MAX)]
            Link.made.tell([beat_of(feed, "holder", 1, seq), *others, beat_of(feed, name, 5, seq)], False)
            await asyncio.sleep(BEAT_S)
        said = Link.made.said[-1]
        assert (said.state, said.reason) == ("waiting", "the adapter holder writes to the slot active")

    run(scenario())
