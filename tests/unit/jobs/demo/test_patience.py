"""How long the demo waits for the ledger, and what it says of one that is behind."""

import pytest

from jobs.demo import report, run
from jobs.demo.expectations import Account
from jobs.demo.ledger import Patience, Standing
from jobs.output import Terminal


def test_it_waits_while_the_ledger_advances() -> None:
    """However slow the machine is."""
    patience = Patience(150)
    assert not any(patience.is_over(left, now=100.0 * step) for step, left in enumerate(range(50, 0, -1)))


def test_it_ends_once_the_ledger_has_stopped() -> None:
    """Going back and forth is no progress."""
    patience = Patience(150)
    assert not patience.is_over(5, now=10)
    assert not patience.is_over(7, now=100)
    assert not patience.is_over(5, now=160)
    assert patience.is_over(6, now=161)


def test_what_is_left_is_nothing_once_the_ledger_has_everything() -> None:
    rows = {"routes_history": 1, "presence_history": 1, "presence": 1}
    assert Standing(10, 0, 0, 20, rows, routes_known=True).left(published=10, delivered=20) == 0
    assert Standing(9, 0, 1, 18, rows, routes_known=False).left(published=10, delivered=20) == 1 + 1 + 2 + 1


@pytest.mark.parametrize(
    ("wrong", "said", "not_said"),
    [
        ("incomplete", "not caught up", "lost"),
        ("unrecorded", "not caught up", "lost"),
        ("lost", "were lost", "caught up"),
    ],
)
def test_a_ledger_that_is_behind_has_lost_nothing(
    wrong: str, said: str, not_said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {name: int(name == wrong) for name in report.MUST_BE_ZERO}
    run._show_verdict(Terminal(), figures, Account([]), good=False)
    shown = capsys.readouterr().out
    assert said in shown
    assert not_said not in shown
