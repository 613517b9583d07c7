"""What the mesh's demo counts as lost and doubled, and the delays it shows (M18)."""

from datetime import UTC, datetime, timedelta

from jobs.demo.mesh_account import Accepted, MeshAccount, Verdict, quantile

NOON = datetime(2013, 12, 2, 12, tzinfo=UTC)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def account(*messages: tuple[int, str]) -> MeshAccount:
    """That has accepted these, at noon."""
    made = MeshAccount()
    for number, to in messages:
        made.accept(Accepted(number, "JFK", to, f"id-{number}", NOON))
    return made


def test_what_arrives_once_where_it_was_to_is_neither_lost_nor_doubled() -> None:
    made = account((1, "BOS"), (2, ""))
    made.arrive(1, "BOS", NOON + minutes(5))
    made.arrive(2, "", NOON + minutes(7))
    assert made.verdict() == Verdict(accepted=2, arrived=2, lost=0, doubled=0, stray=0)
    assert made.missing() == []


def test_what_has_not_arrived_is_lost() -> None:
    made = account((1, "BOS"), (2, "ATL"))
    made.arrive(2, "ATL", NOON)
    assert made.verdict().lost == 1
    assert [message.number for message in made.missing()] == [1]


def test_each_arrival_after_the_first_is_doubled() -> None:
    made = account((1, "BOS"))
    for late in range(3):
        made.arrive(1, "BOS", NOON + minutes(late))
    assert made.verdict() == Verdict(1, 1, 0, doubled=2, stray=0)


def test_a_message_somewhere_else_is_stray_and_still_missing() -> None:
    made = account((1, "BOS"))
    made.arrive(1, "ATL", NOON)
    made.arrive(9, "BOS", NOON)
    assert made.verdict() == Verdict(1, 0, lost=1, doubled=0, stray=2)


def test_the_delay_counts_to_the_first_arrival() -> None:
    made = account((1, "BOS"), (2, "BOS"))
    made.arrive(1, "BOS", NOON + minutes(30))
    made.arrive(1, "BOS", NOON + minutes(20))
    assert [made.delay(message) for message in made.messages] == [minutes(20), None]


def test_an_arrival_may_be_seen_before_the_agents_answer() -> None:
    made = MeshAccount()
    made.arrive(1, "BOS", NOON - minutes(1))
    assert made.verdict().stray == 1
    made.accept(Accepted(1, "JFK", "BOS", "id", NOON))
    assert made.verdict() == Verdict(1, 1, 0, 0, 0)
    assert made.delay(made.messages[0]) == minutes(0)


def test_quantiles_are_delays_that_occurred() -> None:
    delays = [minutes(one) for one in range(1, 101)]
    assert quantile(delays, 0.5) == minutes(50)
    assert quantile(delays, 0.99) == minutes(99)
    assert quantile(delays[:1], 0.99) == minutes(1)
    assert quantile([], 0.5) is None
