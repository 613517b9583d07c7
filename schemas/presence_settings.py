"""`[presence]`: which clients are online, and which agents have which message."""

from typing import Annotated

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import Positive, Seconds, Section


class PresenceSettings(Section, frozen=True, kw_only=True):
    heartbeat_s: Seconds
    timeout_s: Seconds
    trigger_s: Seconds
    table_trigger_s: Seconds
    publish: bool
    message_expiry_s: Positive
    attachments: Annotated[int, Meta(ge=1, le=1000)]
    agents: Annotated[int, Meta(ge=1, le=1000)]
    claim_s: Seconds
    kept_s: Positive


def check_presence(presence: PresenceSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    if presence.timeout_s < 2 * presence.heartbeat_s:
        raise SettingsError(
            f"presence.timeout_s = {presence.timeout_s:g} is too short: one late heartbeat would make all clients of "
            f"a gateway count as offline; allowed: at least twice presence.heartbeat_s = {2 * presence.heartbeat_s:g}"
        )
