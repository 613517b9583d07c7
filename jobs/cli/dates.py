"""`--date` and similar options, parsed by :func:`jobs.runtime.dates.parse_date`."""

from datetime import date

import typer

from jobs.runtime.dates import parse_date

DATE = "DATE"
"""Placeholder for a date in the help of options."""


def date_of(text: str) -> date:
    """Parses a date. An invalid one is a usage error, with the same wording in every command."""
    try:
        return parse_date(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
