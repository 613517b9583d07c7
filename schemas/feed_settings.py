"""Settings of redundant feeds: `[feeds]`, and `[gateway.feeds]` for their subscribers by MQTT (S1 to S6).
`conf/base.toml` documents every key."""

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
    abandoned_s: Seconds
    event_streams: Positive
    events_kept: Positive
    failback: Literal["never", "when_back"]
    failback_after_s: NotNegative


class GatewayFeedsSettings(Section, frozen=True, kw_only=True):
    reorder_ms: NotNegative
    deadline_ms: NotNegative
    silent_ms: NotNegative
    delivers_late: bool
    streams: Positive
    held_messages: Positive
    held_bytes: Positive
    gaps: Positive
    lost_ranges: Positive
    administrative: Positive


def check_feeds(feeds: FeedsSettings, gateway: GatewayFeedsSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    if gateway.reorder_ms > gateway.deadline_ms:
        raise SettingsError(
            f"gateway.feeds.reorder_ms = {gateway.reorder_ms:g} is too long: a gap is suspected before it is given up; "
            f"allowed: at most gateway.feeds.deadline_ms = {gateway.deadline_ms:g}"
        )
    if feeds.partitions % 2:
        raise SettingsError(
            f"feeds.partitions = {feeds.partitions} is odd: half of a feed's partitions is for each of its two "
            "adapters; allowed: even numbers"
        )
    if feeds.abandoned_s < feeds.timeout_s:
        raise SettingsError(
            f"feeds.abandoned_s = {feeds.abandoned_s:g} is too short: adapters that are alive would count as gone; "
            f"allowed: at least feeds.timeout_s = {feeds.timeout_s:g}"
        )
    if len(feeds.names) > feeds.feeds:
        raise SettingsError(
            f"feeds.names has {len(feeds.names)} names, more than feeds.feeds = {feeds.feeds}: raise it"
        )
    if len(set(feeds.names)) < len(feeds.names):
        raise SettingsError(f"feeds.names = {feeds.names} names a feed twice: remove one")
