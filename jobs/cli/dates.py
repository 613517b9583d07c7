"""`--date` and the like: :func:`jobs.runtime.dates.parse_date` for options."""

from datetime import date

import typer

from jobs.runtime.dates import parse_date

DATE = "DATE"
"""How an option says that it takes one."""


def date_of(text: str) -> date:
    """What is no date is an error of usage, in the same words in every command."""
    try:
        return parse_date(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
