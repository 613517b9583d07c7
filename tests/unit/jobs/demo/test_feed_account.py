"""What the feeds' demo counts as missing, doubled, out of order and wrongly reported (S3, S6)."""

from feeds.message import Feed
from jobs.demo.feed_account import FeedAccount
from jobs.demo.feed_receivers import Truth

PAYLOADS = {number: b"%d" % number for number in range(1, 11)}


def account(active: set[int] = frozenset(), backup: set[int] = frozenset()) -> FeedAccount:  # type: ignore[assignment]
    """Of ten messages, of which the ways lose these."""
    missing = {
        feed: frozenset(("s@1", number) for number in lost)
        for feed, lost in ((Feed.ACTIVE, active), (Feed.BACKUP, backup))
    }
    lost = missing[Feed.ACTIVE] & missing[Feed.BACKUP]
    return FeedAccount(PAYLOADS, Truth(missing, lost, frozenset(), {}, {}))


def given(made: FeedAccount, *numbers: int, late: bool = False) -> FeedAccount:
    for number in numbers:
        made.deliver(number, PAYLOADS[number], is_late=late, latency_ms=float(number))
    return made


def wrong(made: FeedAccount) -> dict[str, int]:
    """What is not right, by name."""
    found = made.verdict()._asdict()
    names = ("missing", "doubled", "misordered", "altered", "lost_unreported", "lost_wrongly")
    return {name: found[name] for name in names if found[name]}


def test_all_in_order_is_right() -> None:
    made = given(account({3}, {4}), *PAYLOADS)
    assert made.is_complete()
    assert wrong(made) == {}
    assert (made.received(Feed.ACTIVE), made.gaps_of(Feed.BACKUP)) == (9, (1, 1))


def test_what_both_ways_lost_is_right_once_it_is_reported() -> None:
    made = given(account({3, 4, 5}, {4, 5, 6}), 1, 2, 3, 6, 7, 8, 9, 10)
    assert not made.is_complete()
    assert wrong(made) == {"lost_unreported": 2}
    made.report_lost(4, 4)
    assert wrong(made) == {"lost_unreported": 1}
    made.report_lost(5, 5)
    assert made.is_complete()
    assert wrong(made) == {}


def test_what_a_way_had_is_missing_until_it_comes() -> None:
    made = given(account({3}), 1, 2, 4, 5, 6, 7, 8, 9, 10)
    assert not made.is_complete()
    assert (made.missing(), wrong(made)) == ([3], {"missing": 1})
    made.report_lost(3, 3)
    assert wrong(made) == {"missing": 1, "lost_wrongly": 1}


def test_what_was_reported_lost_may_come_late_with_a_mark() -> None:
    made = given(account({3}), 1, 2, 4, 5)
    made.report_lost(3, 3)
    given(given(made, 3, late=True), 6, 7, 8, 9, 10)
    assert made.is_complete()
    assert wrong(made) == {}
    assert made.verdict().late == 1


def test_twice_is_doubled_and_out_of_order_unless_marked() -> None:
    assert wrong(given(account(), *PAYLOADS, 7)) == {"doubled": 1, "misordered": 1}
    assert wrong(given(given(account(), *PAYLOADS), 7, late=True)) == {"doubled": 1}


def test_out_of_order_is_seen_without_a_double() -> None:
    assert wrong(given(account(), 1, 2, 4, 3, 5, 6, 7, 8, 9, 10)) == {"misordered": 1}


def test_another_payload_or_number_than_the_sources_is_seen() -> None:
    made = given(account(), *list(PAYLOADS)[:-1])
    made.deliver(10, b"other", is_late=False, latency_ms=1.0)
    made.deliver(11, b"11", is_late=False, latency_ms=1.0)
    assert wrong(made) == {"altered": 2}


def test_a_stranger_does_not_stand_for_what_is_missing() -> None:
    made = given(account(), *list(PAYLOADS)[:-1])
    made.deliver(11, b"11", is_late=False, latency_ms=1.0)
    assert not made.is_complete()
    assert wrong(made) == {"missing": 1, "altered": 1}


def test_latencies_are_ones_that_occurred() -> None:
    verdict = given(account(), *PAYLOADS).verdict()
    assert (verdict.p50_ms, verdict.p99_ms, verdict.longest_ms) == (5.0, 10.0, 10.0)
    assert account().verdict().p50_ms is None
