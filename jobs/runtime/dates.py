"""Parses dates given to commands, in one way for all of them."""

from datetime import UTC, date, datetime, timedelta

EXAMPLES = "2026-11-22, today or yesterday"


def parse_date(text: str, today: date | None = None) -> date:
    """A date (UTC): `2026-11-22`, `today` or `yesterday`. `today`: the present date; by default the clock's.

    Raises ValueError with a sentence.
    """
    today = today or datetime.now(UTC).date()
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    word = text.strip().lower()
    if word in named:
        return named[word]
    try:
        return datetime.strptime(word, "%Y-%m-%d").date()  # noqa: DTZ007 - a date has no zone
    except ValueError:
        raise ValueError(f"{text!r} is not a date: write {EXAMPLES} (UTC)") from None
