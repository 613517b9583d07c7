"""An adapter beside many others, without a broker (S1, S2)."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edge.feeds.adapter import adapter as module
from edge.feeds.adapter.adapter import ADAPTERS_MAX, Adapter
from edge.feeds.adapter.registry_link import Told
from edge.feeds.adapter.settings import KafkaSection
from edge.feeds.adapter.settings_rules import BEAT_S
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import AdapterBeat, AdministrativeRequest, AnnouncementRecord, RegistryKey, RegistryRecord
from feeds.synchronise import Announcement
from tests.unit.edge.feeds.adapter.adapter_data import composer, written_settings
from tests.unit.gateway.shard.virtual_time import run

NMEA = 'format="nmea0183"\nname="src"\nfrom="tcp://h:1"'
STREAM = "src@0"
SOURCE = FeedSource(format=SourceFormat.NMEA0183, name="src")


class Link:
    """What an adapter is told of the topic, and what it says there."""

    made: "Link"

    def __init__(self, _: KafkaSection, on_records: Callable[[list[Told], bool], None]) -> None:
        self.tell, self.said = on_records, list[AdapterBeat]()
        self.written: list[Told] = []
        Link.made = self

    def beat(self, _: RegistryKey, beat: AdapterBeat) -> None:
        self.said.append(beat)

    def say(self, key: RegistryKey, record: RegistryRecord | None) -> None:
        self.written.append((key, record))


class FollowedSource:
    """As far as the adapter needs it: number 100 was sent."""

    state, reason = "up", ""

    def __init__(self) -> None:
        self.composer, _ = composer()
        self.composer.last[STREAM] = 100
        self.sent: list[Announcement] = []

    def send_now(self, announcements: Sequence[Announcement]) -> None:
        self.sent += announcements


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


@pytest.mark.parametrize("is_over", [True, False])
def test_what_was_done_long_ago_is_not_done_again_when_the_topic_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """S4: after the connection to the topic was lost, its records come again from the beginning, those that end a
    request much later than those that begin it. What was not ended is done once all of them were read."""
    monkeypatch.setattr(module, "RegistryLink", Link)
    settings = written_settings(tmp_path, NMEA)
    feed, name = settings.feed.name, settings.feed.adapter
    request = AdministrativeRequest(stream=STREAM, payload=b"x", by="", at_us=0)
    announcement = AnnouncementRecord(stream=STREAM, after=50, part=1, payload=b"x", adapter=name, boot=1)

    async def scenario() -> FollowedSource:
        adapter, source = Adapter(settings, boot=5), FollowedSource()
        adapter._following = source  # type: ignore[assignment]
        adapter._administration.activate(source.composer.last)
        Link.made.tell([beat_of(feed, name, 5, 1)], False)
        Link.made.tell(
            [(RegistryKey("request", feed, "a"), request), (RegistryKey("announcement", feed, "a"), announcement)], True
        )
        adapter._step(1.0)  # as a beat does
        assert not source.sent
        assert not Link.made.written
        if is_over:
            Link.made.tell([(RegistryKey("request", feed, "a"), None), (RegistryKey("result", feed, "a"), None)], True)
        Link.made.tell([], False)
        return source

    source = run(scenario())
    assert [one.after for one in source.sent] == ([] if is_over else [50])
