"""Settings for the enrolment of devices: `[gateway.enrolment]` (M5). `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import NotNegative, Positive, Section


class EnrolmentSettings(Section, frozen=True, kw_only=True):
    """`directory` is the authority's, as `waystation ca init` makes it."""

    enabled: bool
    directory: str
    certificate_days: Annotated[int, Meta(ge=1, le=397)]
    requests_per_s: NotNegative
    requests_burst: Positive


def check_enrolment(enrolment: EnrolmentSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    if enrolment.enabled and not enrolment.directory:
        raise SettingsError(
            "gateway.enrolment.enabled = true needs gateway.enrolment.directory: the authority's, made by "
            "`waystation ca init`"
        )
