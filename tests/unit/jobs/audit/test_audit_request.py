"""What `waystation audit` may be asked for."""

from datetime import UTC, datetime

import pytest

from jobs.audit.__main__ import refuse_if_empty, request
from jobs.errors import AuditError
from pipelines.routing.audit import Period

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "since", "until"),
    [
        (["--date", "2026-11-21"], datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        (["--date", "yesterday"], datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        (["--since", "today"], datetime(2026, 11, 22, tzinfo=UTC), NOW),
        (["--since", "2026-11-22T08:00"], datetime(2026, 11, 22, 8, tzinfo=UTC), NOW),
        (
            ["--since", "2026-11-22T08:00+02:00", "--until", "2026-11-22T07:30"],
            datetime(2026, 11, 22, 6, tzinfo=UTC),
            datetime(2026, 11, 22, 7, 30, tzinfo=UTC),
        ),
    ],
)
def test_periods(arguments, since, until):
    assert request(arguments, NOW).period == Period(since, until)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "either --date 2026-11-22 or --since"),
        (["--date", "2026-11-21", "--since", "2026-11-22"], "either --date"),
        (["--date", "2026-11-21", "--until", "2026-11-22"], "--until cannot be used with --date"),
        (["--date", "the day before"], "--date: 'the day before' is not a date: write 2026-11-22, today or yesterday"),
        (["--since", "noon"], "--since: 'noon' is not a time: write 2026-11-22T08:00, or a date"),
        (["--since", "2026-11-23"], "the period is empty"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(arguments, sentence):
    with pytest.raises(AuditError, match=sentence):
        request(arguments, NOW)


NOTHING = {
    "since": "2026-11-21T00:00:00.000Z", "until": "2026-11-22T00:00:00.000Z", "messages": 0, "right": 0, "differs": 0,
    "later": 0, "watermarks": {"routes": "2026-11-20T23:59:00.000Z"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({}, "the ledger has no messages between 2026-11-21T00:00:00.000Z and 2026-11-22T00:00:00.000Z"),
        (
            {"messages": 1200, "later": 1200},
            "none of the 1,200 messages .* the ledger has all route events only until 2026-11-20T23:59:00.000Z: ",
        ),
        (
            {"messages": 3, "later": 3, "watermarks": {"routes": None}},
            "because the ledger has no route events: keep it running",
        ),
    ],
)
def test_an_audit_of_nothing_is_no_good_news(counts, sentence):
    """No differences are found where nothing was compared: status 2, as where it could not be."""
    with pytest.raises(AuditError, match=sentence) as raised:
        refuse_if_empty(NOTHING | counts)
    assert raised.value.exit_status == 2


@pytest.mark.parametrize("counts", [{"messages": 2, "right": 1, "later": 1}, {"differs": 1}])
def test_what_was_compared_is_reported(counts):
    """Also instructions of messages that are not there."""
    refuse_if_empty(NOTHING | counts)
