"""What a run did, or would do, for people and as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from jobs.maintain.run import DONE, FAILED, PLANNED, Result

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
MOST_DATES = 3


def line(result: Result) -> str:
    """One line for a step."""
    words = {PLANNED: "due: ", DONE: "done: "}.get(result.state, f"{result.state}: ")
    text = f"{result.place}: {words}{result.task}{_amount(result)}"
    return f"{text}: {result.error}" if result.error else text


def summary(results: Sequence[Result], dry_run: bool) -> str:
    if not results:
        return "nothing to do"
    failed = sum(result.state == FAILED for result in results)
    steps = f"{len(results)} step{'s' if len(results) > 1 else ''}"
    if dry_run:
        return f"{steps} due; nothing was changed" if not failed else f"{steps}; {failed} could not be planned"
    return f"{steps}, {failed} failed" if failed else f"{steps}, none failed"


def as_json(results: Sequence[Result], dry_run: bool) -> str:
    """One object: whether it was a dry run, whether all succeeded, and every step with its amounts."""
    success = all(result.state != FAILED for result in results)
    steps = [_plain(result) for result in results]
    return json.dumps({"dry_run": dry_run, "success": success, "steps": steps}, indent=2, ensure_ascii=False)


def size(count: int) -> str:
    """A number of bytes in readable units."""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {UNITS[unit]}" if unit == 0 or amount >= 10 else f"{amount:.1f} {UNITS[unit]}"


def _amount(result: Result) -> str:
    amount = result.amount
    parts = [f"{amount.rows:,} rows"] if amount.rows else []
    parts += [f"{amount.files:,} files, {size(amount.bytes)}"] if amount.files else []
    days = [str(day) for day in amount.dates]
    if len(days) > MOST_DATES:
        parts.insert(0, f"{len(days)} dates, {days[0]} to {days[-1]}")
    elif days:
        parts.insert(0, ", ".join(days))
    return f" ({'; '.join(parts)})" if parts else ""


def _plain(result: Result) -> dict[str, Any]:
    amount = result.amount
    return {
        "place": result.place,
        "task": result.task,
        "state": result.state,
        "error": result.error or None,
        "dates": [str(day) for day in amount.dates],
        "files": amount.files,
        "rows": amount.rows,
        "bytes": amount.bytes,
    }
