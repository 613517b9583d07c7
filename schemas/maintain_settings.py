"""`[maintain]`: what is kept, and for how long. `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import Natural, Positive, Section

KEPT = ("message_days", "presence_days", "quarantine_days", "quality_days")
"""The keys that say for how many days history is kept; 0 for ever."""


class MaintainSettings(Section, frozen=True, kw_only=True):
    message_days: Natural
    presence_days: Natural
    quarantine_days: Natural
    quality_days: Natural
    small_files: Positive
    file_bytes: Annotated[int, Meta(ge=1 << 20)]
    vacuum_hours: Annotated[int, Meta(ge=24)]
    leftover_days: Positive


def check_maintain(maintain: MaintainSettings, window_days: int) -> None:
    """The rules between keys. Raises SettingsError."""
    days = {key: getattr(maintain, key) for key in KEPT}
    for key, kept in days.items():
        if 0 < kept < window_days:
            raise SettingsError(
                f"maintain.{key} = {kept} is too short: the ledger still adds rows to dates within the message "
                f"window; allowed: 0 (for ever), or at least ledger.message_window_days = {window_days}"
            )
    results = days.pop("quality_days")
    longer = next((key for key, kept in days.items() if kept == 0 or kept > results), None)
    if results and longer:
        raise SettingsError(
            f"maintain.quality_days = {results} is shorter than maintain.{longer} = {days[longer]} (0 is for ever): "
            "a date without results would be judged again by every run; allowed: 0, or the longest of the others"
        )
