"""Settings of redundant feeds: `[feeds]` (S1 to S6). `conf/base.toml` documents every key."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import NotNegative, Positive, Seconds, Section

FeedName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z", description="1 to 100 letters, digits, '.', '_' or '-'")
]


class FeedsSettings(Section, frozen=True, kw_only=True):
    names: list[FeedName]
    partitions: Positive
    timeout_s: Seconds
    feeds: Positive
    adapters: Positive
    subscribers: Positive
    subscriber_ttl_s: Annotated[int, Meta(ge=1, le=86_400)]
    requests: Positive
    request_kept_s: Seconds
    event_streams: Positive
    events_kept: Positive
    failback: Literal["never", "when_back"]
    failback_after_s: NotNegative


def check_feeds(feeds: FeedsSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    if feeds.partitions % 2:
        raise SettingsError(
            f"feeds.partitions = {feeds.partitions} is odd: half of a feed's partitions is for each of its two "
            "adapters; allowed: even numbers"
        )
    if len(feeds.names) > feeds.feeds:
        raise SettingsError(
            f"feeds.names has {len(feeds.names)} names, more than feeds.feeds = {feeds.feeds}: raise it"
        )
    if len(set(feeds.names)) < len(feeds.names):
        raise SettingsError(f"feeds.names = {feeds.names} names a feed twice: remove one")
