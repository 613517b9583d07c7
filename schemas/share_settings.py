"""Settings of conversations in share groups: `[gateway.shares]` (R6). `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.sections import Section


class SharesSettings(Section, frozen=True, kw_only=True):
    """`conversations` 0: the user property `conversation` has no meaning."""

    conversations: Annotated[int, Meta(ge=0, le=100_000)]
    conversation_id_bytes: Annotated[int, Meta(ge=1, le=1_024)]
