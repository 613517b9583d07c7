"""In which order a shard says things about share groups to another one (R6, G6)."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.hold import Hold
from gateway.shard.ready import ReadySessions
from gateway.shard.shard import Shard
from gateway.shard.share_messages import Announced, ShareMessage
from gateway.shard.shares import Shares

SHARDS = 3


class Home:
    """The home of a shard. `said` is what has gone to each shard; `barriers` are not read back yet."""

    def __init__(self) -> None:
        self.said: list[tuple[int, int]] = []
        self.barriers: list[Callable[[], None]] = []
        limits = SimpleNamespace(share_in_flight=8)
        node: Any = SimpleNamespace(
            settings=SimpleNamespace(
                kafka=SimpleNamespace(shards=SHARDS), gateway=SimpleNamespace(limits=limits, shares=None)
            ),
            counts=Counter(),
            ready=ReadySessions(Hold()),
            numbers=None,
            clock=lambda: 0.0,
        )
        other: Any = SimpleNamespace(confirmed=self.barriers.append, pump=None, epoch=0)
        self.shares = Shares(node, Shard(0), other, self._post, lambda _: None)
        self.shares.connect(other, other, other, other, lambda *_: None)

    def _post(self, shard: int, _epoch: int, message: ShareMessage) -> None:
        assert isinstance(message, Announced)
        self.said.append((shard, message.shard))

    def say(self, shard: int, number: int, *, is_confirmed: bool) -> None:
        post = self.shares._post_confirmed if is_confirmed else self.shares._post
        post(shard, Announced(number))

    def read_back(self) -> None:
        if self.barriers:
            self.barriers.pop(0)()


steps = st.lists(st.tuples(st.sampled_from(["say", "say confirmed", "read back"]), st.integers(1, 2)), max_size=40)


@given(steps)
def test_each_shard_hears_things_in_the_order_in_which_they_are_said(steps: list[tuple[str, int]]) -> None:
    """Also if some have to wait for a barrier: who is told that a member takes more must know what it gave back."""
    home, wanted = Home(), dict[int, list[int]]()
    for number, (step, shard) in enumerate(steps):
        if step == "read back":
            home.read_back()
        else:
            home.say(shard, number, is_confirmed=step == "say confirmed")
            wanted.setdefault(shard, []).append(number)
        for to, numbers in wanted.items():
            heard = [said for shard_told, said in home.said if shard_told == to]
            assert heard == numbers[: len(heard)]
    while home.barriers:
        home.read_back()
    for to, numbers in wanted.items():
        assert [said for shard_told, said in home.said if shard_told == to] == numbers


def test_what_has_to_be_confirmed_waits_and_others_do_not() -> None:
    home = Home()
    home.say(1, 1, is_confirmed=True)
    home.say(1, 2, is_confirmed=False)
    home.say(2, 3, is_confirmed=False)
    assert home.said == [(2, 3)]
    home.read_back()
    assert home.said == [(2, 3), (1, 1), (1, 2)]
