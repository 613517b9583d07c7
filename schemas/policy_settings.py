"""Settings of what the source gateway allows, for all clients: `[gateway.policy]` (Q12). `conf/base.toml` documents
every key."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.sections import Natural, NotNegative, Positive, Section

Rate = NotNegative
"""Per second; 0 for no limit."""
TopicFilter = Annotated[
    str,
    Meta(
        min_length=1,
        pattern=r"^(#|(\+|[^+#/]*)(/(\+|[^+#/]*))*(/#)?)\Z",
        description="a topic filter, with + and # alone on a level and # only on the last",
    ),
]
"""An MQTT topic filter (MQTT 5.0, 4.7.1)."""
ContentTypes = Annotated[
    str,
    Meta(
        pattern=r"^(\*/\*|[^*/;\s]+/(\*|[^*/;\s]+))\Z",
        description='a content type, such as "image/png", "image/*" or "*/*"',
    ),
]
"""`type/subtype`, `type/*` or `*/*`."""


class TopicBytes(Section, frozen=True, kw_only=True):
    """The largest payload of a message to a topic that the filter matches."""

    filter: TopicFilter
    bytes: Natural


class AttachmentSettings(Section, frozen=True, kw_only=True):
    types: tuple[ContentTypes, ...]
    bytes: Natural
    above: Literal["refuse", "flag"]


class MessageRateSettings(Section, frozen=True, kw_only=True):
    messages_per_s: Rate
    messages_burst: Positive
    bytes_per_s: Rate
    bytes_burst: Positive
    above: Literal["refuse", "pause", "disconnect"]


class ConnectionRateSettings(Section, frozen=True, kw_only=True):
    per_s: Rate
    burst: Positive
    client_per_s: Rate
    client_burst: Positive


class PolicySettings(Section, frozen=True, kw_only=True):
    """What the source gateway allows (Q12)."""

    message_bytes: Natural
    topic_bytes: tuple[TopicBytes, ...]
    blocked_publish: tuple[TopicFilter, ...]
    blocked_subscribe: tuple[TopicFilter, ...]
    attachments: AttachmentSettings
    message_rate: MessageRateSettings
    connection_rate: ConnectionRateSettings
