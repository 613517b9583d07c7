"""A parser that begins in the middle of a source: counters that start over go on near the feed's log (S2)."""

from pathlib import Path

import pytest

from edge.feeds.adapter.parsing import parser_maker
from edge.feeds.source import SourceMessage
from tests.unit.edge.feeds.adapter.adapter_data import written_settings


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        ({}, 3),
        ({"src/p@1": 510}, 515),
        ({"src/p@1": 510, "src/p@0": 9_000}, 515),
        ({"src/p@0": 9_000}, 3),
        ({"p@1": 9_000, "srcp@1": 9_000, "src/q@1": 9_000, "src@1": 9_000}, 3),
    ],
    ids=["nothing", "its own", "an earlier epoch, too", "only an earlier epoch", "other streams"],
)
def test_only_the_same_stream_says_in_which_round_a_counter_is(
    tmp_path: Path, highest: dict[str, int], expected: int
) -> None:
    """The two adapters may have read different parts of the log, and must agree."""
    source = (
        'format="csv"\nname="src"\nfrom="file:x.csv"\nepoch=1\n'
        "mapping={stream='s',number='n',counter_last=255}\ncsv={columns=['s','n']}"
    )
    make = parser_maker(written_settings(tmp_path, source))
    for some in (highest, dict(reversed(highest.items()))):
        (found,) = make(some).feed(b"p,3\n")
        assert isinstance(found, SourceMessage)
        assert (found.stream, found.number) == ("src/p@1", expected)
