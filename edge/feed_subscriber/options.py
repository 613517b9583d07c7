"""What a subscriber is made of: the arguments of FeedSubscriber, checked (S3)."""

import re
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypedDict

from edge.client.client import Client
from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber.limits import FeedLimits
from feeds.errors import FeedRecordError
from feeds.message import FEED_NAME, NUMBER_MAX, checked_stream
from schemas.feed_words import SubscriberMode

Start = Literal["end", "beginning"] | Mapping[str, int]
Snapshot = Callable[[str, int, int], Awaitable[Mapping[int, bytes] | None]]
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")


class FeedOptions(TypedDict, total=False):
    """The fields of :class:`SubscriberOptions`, as keyword arguments. docs/feeds.md explains each."""

    name: str
    kafka: str
    kafka_options: KafkaOptions
    prefix: str
    gateway: str | Client | None
    state: str | Path | None
    mode: SubscriberMode
    start: Start
    streams: Collection[str] | None
    auto_commit: bool
    snapshot: Snapshot | None
    administration: str | None
    authorization: str | None
    tls: ssl.SSLContext | None
    limits: FeedLimits


@dataclass(frozen=True)
class SubscriberOptions:
    """Checked by `__post_init__`, which raises ValueError."""

    feed: str
    name: str = "subscriber"
    kafka: str = ""
    kafka_options: KafkaOptions = field(default_factory=KafkaOptions)
    prefix: str = "ws."
    gateway: str | Client | None = None
    state: str | Path | None = None
    mode: SubscriberMode = "warm"
    start: Start = "end"
    streams: Collection[str] | None = None
    auto_commit: bool = True
    snapshot: Snapshot | None = None
    administration: str | None = None
    authorization: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    limits: FeedLimits = field(default_factory=FeedLimits)

    def __post_init__(self) -> None:
        if FEED_NAME.fullmatch(self.feed) is None:
            raise ValueError(f"a feed's name has 1 to 100 letters, digits, '.', '_' or '-', unlike {self.feed!r:.120}")
        if NAME.fullmatch(self.name) is None:
            raise ValueError(
                "a subscriber's name has 1 to 128 letters, digits and - . _ : @ ~, and begins with a letter or digit, "
                f"unlike {self.name!r:.160}"
            )
        if bool(self.kafka) is (self.gateway is not None):
            raise ValueError("give either kafka, the brokers' addresses, or gateway")
        if _PREFIX.fullmatch(self.prefix) is None:
            raise ValueError(f"prefix is that of the platform's topics (kafka.prefix), not {self.prefix!r:.120}")
        if self.mode not in ("warm", "cold"):
            raise ValueError(f"mode must be warm or cold, not {self.mode!r}")
        if isinstance(self.streams, str):
            raise ValueError("streams is a collection of names of source streams, not one text")
        self._check_start()
        if self.gateway is not None and (self.mode, self.start, self.snapshot) != ("warm", "end", None):
            raise ValueError("mode, start and snapshot are for kafka: a gateway merges both copies by itself")
        if self.kafka:
            self.brokers()

    def brokers(self) -> list[str]:
        """The brokers of `kafka`: `broker-1:9092,broker-2:9092`, with or without `kafka://`. Raises ValueError."""
        found = [one.strip() for one in self.kafka.removeprefix("kafka://").split(",")]
        for one in found:
            host, _, port = one.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise ValueError(f"kafka is host:port of brokers, with commas between, not {self.kafka!r:.200}")
        return found

    def _check_start(self) -> None:
        if isinstance(self.start, str):
            if self.start not in ("end", "beginning"):
                raise ValueError(f"start must be end, beginning, or numbers by source stream, not {self.start!r}")
            return
        for stream, number in self.start.items():
            try:
                checked_stream(stream)
            except FeedRecordError as error:
                raise ValueError(f"start: {error}") from None
            if not 0 <= number <= NUMBER_MAX:
                raise ValueError(f"start: {number} of {stream} is not from 0 to 2^63-1")
