"""The account of who should have got what: every way in which it can be wrong is seen."""

import pytest

from jobs.demo.expectations import Account, Verdict, quantile
from jobs.demo.plan import Member, Publish, Subscription


def member(client: str, *subscriptions: tuple[str, int]) -> Member:
    return Member(client, "test", True, 1, tuple(Subscription(*wanted) for wanted in subscriptions))


def message(seq: int = 1, topic: str = "flights/JFK/N1/departed", qos: int = 1, sender: str = "N1") -> Publish:
    return Publish(f"{sender}-{seq}", sender, seq, topic, qos, {})


@pytest.fixture
def account() -> Account:
    account = Account(
        [
            member("N1"),
            member("all", ("flights/#", 1), ("flights/+/+/departed", 2)),
            member("board", ("flights/+/+/departed", 0)),
            member("BOS", ("flights/BOS/#", 2)),
        ]
    )
    for client in ("N1", "all", "board"):
        account.online(client, 0.0)
    return account


def publish(account: Account, *messages: Publish, at: float = 1.0) -> None:
    for one in messages:
        account.published(one, at)
        account.acknowledged(one.id)


def test_recipients_are_those_with_a_filter_that_matches_at_the_lower_qos(account: Account) -> None:
    assert account.recipients("flights/JFK/N1/departed", 2) == {"all": 2, "board": 0}
    assert account.recipients("flights/BOS/N1/arrived", 2) == {"all": 1, "BOS": 2}
    assert account.recipients("flights/BOS/N1/arrived", 0) == {"all": 0, "BOS": 0}
    assert account.recipients("weather", 1) == {}
    assert account.recipients("@N1", 2) == {"N1": 2}
    assert account.recipients("@nobody", 2) == {}


def test_a_good_run(account: Account) -> None:
    publish(account, message())
    assert not account.is_settled
    assert account.in_flight == (2, 0)
    account.received("all", "N1-1", 1.002)
    account.received("board", "N1-1", 1.004)
    assert account.is_settled
    assert account.verdict() == Verdict(1, 2, 0, 0, 0, 0, 0, 4.0, 4.0)


def test_what_does_not_come_is_lost(account: Account) -> None:
    publish(account, message(topic="flights/BOS/N1/arrived"))
    account.received("all", "N1-1", 2.0)
    assert account.in_flight == (0, 1)
    assert account.verdict().lost == 1
    assert account.still_due() == [("N1-1", "BOS", 1)]


def test_what_waited_for_an_absent_client_has_no_latency(account: Account) -> None:
    publish(account, message(topic="flights/BOS/N1/arrived"))
    account.online("BOS", 50.0)
    account.received("BOS", "N1-1", 51.0)
    assert account.waited == ["N1-1"]
    assert account.verdict().p99_ms is None


def test_qos_0_is_due_only_to_those_who_are_there_and_stay(account: Account) -> None:
    account.offline("board")
    publish(account, message(1))
    account.online("board", 2.0)
    publish(account, message(2), at=3.0)
    assert ("N1-1", "board", 0) not in account.still_due()
    assert ("N1-2", "board", 0) in account.still_due()
    account.offline("board")
    assert not [due for due in account.still_due() if due[1] == "board"]
    account.received("board", "N1-2", 4.0)
    assert account.verdict().stray == 0


def test_a_second_copy_is_a_duplicate_at_any_qos(account: Account) -> None:
    publish(account, message())
    for client in ("all", "all", "board", "board", "board"):
        account.received(client, "N1-1", 2.0)
    verdict = account.verdict()
    assert (verdict.delivered, verdict.duplicates) == (2, 3)


def test_what_nobody_asked_for_is_stray(account: Account) -> None:
    publish(account, message())
    account.received("BOS", "N1-1", 2.0)
    account.received("all", "from elsewhere", 2.0)
    assert account.verdict().stray == 2


def test_order_is_that_of_each_sender(account: Account) -> None:
    publish(account, message(1), message(2), message(1, sender="N2"))
    for identifier in ("N1-2", "N2-1", "N1-1"):
        account.received("all", identifier, 2.0)
    assert account.verdict().misordered == 1


def test_a_publish_without_acknowledgement_is_seen(account: Account) -> None:
    account.published(message(topic="weather"), 1.0)
    assert account.verdict().unacknowledged == 1
    assert not account.is_settled
    account.acknowledged("N1-1")
    account.acknowledged("N1-1")
    assert account.verdict().published == 1
    assert account.by_qos() == {"0": 0, "1": 1, "2": 0}


def test_quantiles() -> None:
    assert quantile([], 0.5) is None
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([float(n) for n in range(100)], 0.99) == 99.0
    assert quantile([float(n) for n in range(100)], 0.5) == 50.0
