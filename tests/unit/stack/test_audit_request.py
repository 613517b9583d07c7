"""What `waystation audit` may be asked for."""

from datetime import UTC, datetime

import pytest

from jobs.audit import request
from jobs.errors import JobError
from pipelines.audit import Period

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "since", "until"),
    [
        (["--date", "2026-11-21"], datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
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
        ([], "either --date 2026-11-22, or --since"),
        (["--date", "2026-11-21", "--since", "2026-11-22"], "either --date"),
        (["--date", "2026-11-21", "--until", "2026-11-22"], "--until goes with --since"),
        (["--date", "yesterday"], "--date 'yesterday' is no date"),
        (["--since", "noon"], "--since 'noon' is no time"),
        (["--since", "2026-11-23"], "the period is empty"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(arguments, sentence):
    with pytest.raises(JobError, match=sentence):
        request(arguments, NOW)
