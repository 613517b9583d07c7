"""How what shards say to one another gets there: directly, or by Kafka, and in order (R6, G6)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from gateway.bus import Bus
from gateway.errors import BusError
from gateway.shard.hold import Hold
from gateway.shard.ready import ReadySessions
from gateway.shard.share_messages import Announced, Sender, ShareMessage, decode
from gateway.shard.share_senders import ShareSenders
from gateway.shard.share_ways import ShareWays
from gateway.shard.shares import Shares

HERE, THERE, OTHER = 0, 1, 2
SHARDS = 3


class Site:
    """The process of shard HERE, which also has THERE from `comes` to `goes`. `written` are records that Kafka has not
    stored yet, `heard` what homes in the process have heard directly, with the number of the home."""

    def __init__(self) -> None:
        self.written: list[tuple[int, ShareMessage | None, Callable[[Any, Any], None]]] = []
        self.heard: list[tuple[int, ShareMessage]] = []
        self.fatal: list[Exception] = []
        self._homes: dict[int, Any] = {}
        self._number = 0
        self.ready = ReadySessions(Hold())
        bus = cast(Bus, self)
        self.ways = ShareWays(bus, "egress", self._find, self.ready, lambda act: act(), self.fatal.append)

    def produce(self, topic: str, shard: int, _key: bytes, value: bytes, headers: Any, done: Any) -> None:
        assert topic == "egress"
        self.written.append((shard, decode(value, headers), done))

    def comes(self, shard: int = THERE) -> int:
        """A home of the shard begins here; its number."""
        self._number += 1
        home = SimpleNamespace(senders=ShareSenders(SHARDS), number=self._number, has_ended=False)
        home.receive = lambda message: None if home.has_ended else self.heard.append((home.number, message))
        self._homes[shard] = home
        return self._number

    def goes(self, shard: int = THERE) -> None:
        home = self._homes.pop(shard, None)
        if home is not None:
            home.has_ended = True

    def say(self, number: int, to: int = THERE, sender: int = HERE) -> None:
        self.ways.post(Sender(sender, 1), to, 0, Announced(number))

    def store(self, error: Any = None) -> None:
        """Kafka has stored the record that was written first."""
        self.written.pop(0)[2](error, None)

    def _find(self, shard: int, _epoch: int) -> Shares | None:
        return cast("Shares | None", self._homes.get(shard))

    def numbers(self, home: int) -> list[int]:
        return [message.shard for by, message in self.heard if by == home and isinstance(message, Announced)]


def test_who_is_here_is_spoken_to_directly_and_others_by_kafka() -> None:
    site = Site()
    home = site.comes()
    site.say(1)
    site.say(2, to=OTHER)
    assert site.numbers(home) == [1]
    assert [(shard, message) for shard, message, _ in site.written] == [(OTHER, Announced(2))]


def test_nothing_is_said_directly_while_what_was_written_is_not_stored() -> None:
    """Else the record could stand behind the start of the shard's next home, which would take it for something new."""
    site = Site()
    site.say(1)
    site.say(2)
    home = site.comes()
    site.say(3)
    site.say(4)
    site.store()
    assert site.numbers(home) == []
    site.store()
    assert site.numbers(home) == [3, 4]
    site.say(5)
    assert site.numbers(home) == [3, 4, 5]


def test_others_do_not_wait_for_it() -> None:
    site = Site()
    site.say(1)
    there, other = site.comes(THERE), site.comes(OTHER)
    site.say(2, to=OTHER)
    site.say(3, to=THERE, sender=OTHER)
    assert (site.numbers(there), site.numbers(other)) == ([3], [2])


def test_what_waits_is_lost_with_the_home_that_was_to_hear_it() -> None:
    """The next home asks for it; what is said to that one comes first."""
    site = Site()
    site.say(1)
    home = site.comes()
    site.say(2)
    site.goes()
    site.say(3)
    site.store()
    site.store()
    next_one = site.comes()
    site.say(4)
    assert (site.numbers(home), site.numbers(next_one)) == ([], [4])


def test_a_shard_is_idle_once_all_that_it_has_said_is_stored() -> None:
    site = Site()
    assert site.ways.are_idle(HERE)
    site.say(1)
    assert not site.ways.are_idle(HERE)
    assert site.ways.are_idle(OTHER)
    site.store()
    assert site.ways.are_idle(HERE)


def test_a_record_that_kafka_refuses_ends_the_process() -> None:
    site = Site()
    site.say(1)
    site.store(SimpleNamespace(str=lambda: "too large"))
    assert [str(error) for error in site.fatal] == ["cannot write a message about share groups: too large"]
    assert isinstance(site.fatal[0], BusError)


@given(st.lists(st.sampled_from(["say", "comes", "goes", "store"]), max_size=60))
def test_a_home_hears_what_is_said_in_order_and_once(steps: list[str]) -> None:
    """By Kafka or directly, and everything, as long as the home stays; what is said directly comes behind all that is
    stored."""
    site, said, home, since = Site(), 0, 0, 0
    for step in steps:
        match step:
            case "say":
                said += 1
                site.say(said)
            case "comes" if not home:
                home, since = site.comes(), said
            case "goes" if home:
                site.goes()
                home = 0
            case "store" if site.written:
                site.store()
        if home:
            heard = site.numbers(home)
            assert heard == list(range(since + 1, since + 1 + len(heard)))
            assert not heard or not site.written
    while site.written:
        site.store()
    if home:
        assert site.numbers(home) == list(range(since + 1, said + 1))
