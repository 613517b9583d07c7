"""Settings of conversations in share groups: `[gateway.shares]` (R6). `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import NotNegative, Seconds, Section


class SharesSettings(Section, frozen=True, kw_only=True):
    """`conversations` 0: the user property `conversation` has no meaning."""

    conversations: Annotated[int, Meta(ge=0, le=100_000)]
    conversation_id_bytes: Annotated[int, Meta(ge=1, le=1_024)]
    conversation_s: Seconds
    conversation_offline_s: NotNegative
    conversation_waiting: Annotated[int, Meta(ge=1, le=10_000)]


def check_shares(shares: SharesSettings) -> None:
    """Raises SettingsError for times that do not fit together."""
    if shares.conversation_offline_s > shares.conversation_s:
        raise SettingsError(
            f"gateway.shares.conversation_offline_s = {shares.conversation_offline_s:g} is too long: a conversation is "
            f"forgotten before; allowed: at most gateway.shares.conversation_s = {shares.conversation_s:g}"
        )
