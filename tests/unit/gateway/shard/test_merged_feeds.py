"""The merge of a shard is a fold over its `egress`, whatever is stored of it, and wherever a life of the home ends
(S3)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.ingress_copy import ingress_copy
from feeds.merge_settings import MergeSettings
from feeds.message import Feed
from gateway.memory_bus import MemoryRecord
from gateway.shard.feed_records import Decided, DecisionRecord, FeedCopy, FromHome, copy_record, decision_record, read
from gateway.shard.feed_states import SourcePlaces, SourceState, checked
from gateway.shard.merged_feeds import Merged, MergedFeeds
from gateway.shard.messages import PendingMessage
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.errors import RecordError
from tests.unit.gateway.shard.feed_harness import FEED, A, B, message

SETTINGS = MergeSettings(recovers=False, compared=1, held_messages=6, gaps=3, lost_ranges=4, held_bytes=6_000)
DEEP = b"\x91" * 100_000 + b"\xc0"
"""A field that is not known, nested too deeply."""
STREAMS = ("radar@0", "radar@1", "sonar@0")

Records = list[FeedCopy | DecisionRecord]


def copy(position: int, slot: Feed, stream: str, sequence: int, part: int = 0) -> FeedCopy:
    """As it is read at a position of `egress`."""
    of = ingress_copy(FEED, slot, message(sequence, slot=slot, stream=stream, part=part), 0, 2)
    headers = [*of.headers, ("instr", Instruction(of.partition, position, 0, 1, 0).encode()), ("router", b"active")]
    record = MemoryRecord(("egress", 0), of.key, of.value, headers)
    record.stored_at(position, 0)
    found = read(record)
    assert isinstance(found, FeedCopy)
    return found


def decided(decision: Decided) -> DecisionRecord:
    return DecisionRecord(1, FEED, [decision])


numbers = st.integers(0, 12)
decisions = st.one_of(
    st.builds(Decided, st.just("suspect"), st.sampled_from(STREAMS), numbers),
    st.builds(Decided, st.just("give_up"), st.sampled_from(STREAMS), numbers, st.sampled_from(["passed", "deadline"])),
    st.builds(Decided, st.just("forget"), st.sampled_from(STREAMS)),
    st.builds(Decided, st.just("dead"), st.just(""), st.integers(0, 1)),
    st.builds(Decided, st.just("pause")),
)
copies = st.tuples(st.sampled_from([A, B]), st.sampled_from(STREAMS), numbers, st.sampled_from([0, 0, 0, 0, 1]))
steps = st.sampled_from(["", "", "", "commit", "commit", "torn commit", "crash"])


class Lives:
    """Lives of a home that read the same records. `changelog` is what was written of sources, `blob` the position that
    was committed last, `unfinished` the positions that it names; `seen` every release that was offered. A life whose
    commit was torn makes no other (:class:`gateway.shard.checkpoint.Checkpointer`)."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.changelog: dict[bytes, bytes] = {}
        self.blob: bytes | None = None
        self.unfinished: list[int] = []
        self.live: dict[int, Merged] = {}
        self.seen: dict[int, tuple[int, bool]] = {}
        self.feeds = MergedFeeds([FEED], SETTINGS)
        self.next = 0
        self.is_torn = False

    def go_on(self) -> None:
        found, position = self.records[self.next], self.next
        self.next += 1
        is_copy = isinstance(found, FeedCopy)
        let_go = self.feeds.take(found, 0.0) if is_copy else self.feeds.decide(found, position, 0.0)
        self._offer(self.feeds.nothing_again() + let_go)

    def _offer(self, merged: list[Merged]) -> None:
        for one in merged:
            if one.release is None:
                continue
            said = one.copy.position, one.release.is_late
            assert self.seen.setdefault(one.release.number, said) == said, "another life has decided otherwise"
            self.live[one.release.number] = one

    def commit(self, finished: set[int], *, is_torn: bool) -> None:
        self.live = {number: one for number, one in self.live.items() if number not in finished}
        if self.is_torn:
            return
        pending = [
            PendingMessage(one.copy.message, 0, one.copy.position, 0.0, [], release=one.release)
            for one in self.live.values()
        ]
        written, blob = self.feeds.save(self.next, pending)
        for key, value in written.items():
            checked(key, value)
        self.is_torn = is_torn
        if is_torn:
            self.changelog |= dict(list(written.items())[: len(written) // 2 + 1])
            return
        self.changelog |= written
        self.blob = blob
        self.unfinished = sorted({*(one.position for one in pending), *self.feeds.positions()})

    def crash(self) -> None:
        self.feeds = MergedFeeds([FEED], SETTINGS)
        self.feeds.restore(self.changelog.items(), self.blob, 0.0)
        self.live.clear()
        self.is_torn = False
        self.next = self.feeds.applied_to
        for position in self.unfinished:
            found = self.records[position]
            assert isinstance(found, FeedCopy)
            merged = self.feeds.found_again(found)
            assert all(one.release is not None for one in merged), "what was not finished is dropped"
            self._offer(merged)
        assert list(self.live) == sorted(self.live), "not in the order of the merge"


@given(st.lists(st.tuples(copies | decisions, steps), max_size=60), st.data())
def test_every_life_decides_alike(script: list[tuple[Any, str]], data: st.DataObject) -> None:
    """S3, S6, Q1: with commits that fail half-way, and limits that are reached."""
    records: Records = [
        decided(what) if isinstance(what, Decided) else copy(at, *what) for at, (what, _) in enumerate(script)
    ]
    whole = Lives(records)
    for _ in records:
        whole.go_on()
    lives = Lives(records)
    for _, step in script:
        if lives.next < len(records):
            lives.go_on()
        if step == "crash":
            lives.crash()
        elif step:
            finished = {number for number in lives.live if data.draw(st.booleans())}
            lives.commit(finished, is_torn=step == "torn commit")
    while lives.next < len(records):
        lives.go_on()
    assert lives.seen == whole.seen
    assert {*lives.feeds.positions()} == {*whole.feeds.positions()}
    assert not [*lives.feeds.further()]


@given(st.lists(copies, max_size=40))
def test_each_copy_has_one_end(given_copies: list[tuple[Feed, str, int, int]]) -> None:
    """R4: it is released, dropped, or held, so that its instruction is relinquished once; and what is held bounds the
    position from which a restart reads."""
    feeds, ended = MergedFeeds([FEED], SETTINGS), list[int]()
    for at, of in enumerate(given_copies):
        ended += [one.copy.position for one in feeds.take(copy(at, *of), 0.0)]
        assert sorted([*ended, *feeds.positions()]) == list(range(at + 1))
        assert feeds.held <= 3 * (SETTINGS.held_messages + 1)
    for name in feeds.awake():
        ended += [one.copy.position for one in feeds.decide(DecisionRecord(1, name, [Decided("pause")]), 99, 0.0)]
    assert sorted(ended) == list(range(len(given_copies)))


def test_nobody_is_declared_dead_or_lost_while_copies_are_on_their_way() -> None:
    """S3: the timer, by what it may decide and when."""
    feeds = MergedFeeds([FEED], MergeSettings(recovers=False), silent_ms=1_000)
    assert feeds.due_ms() is None
    feeds.take(copy(0, B, "radar@0", 0), 0.0)
    feeds.take(copy(1, A, "radar@0", 0), 2.0)
    feeds.take(copy(2, A, "radar@0", 1), 5.0)
    feeds.take(copy(3, A, "radar@0", 3), 10.0)
    assert feeds.due_ms() == 35.0
    assert not [*feeds.proposals(34.0, may_give_up=True)]
    [(_, [suspected])] = feeds.proposals(35.0, may_give_up=True)
    assert suspected == Decided("suspect", "radar@0", 2)
    feeds.decide(decided(suspected), 4, 40.0)
    assert not [*feeds.proposals(999.0, may_give_up=True)]
    assert not [*feeds.proposals(9_000.0, may_give_up=False)]
    assert not [*feeds.proposals(1_004.0, may_give_up=True)], "the active goes on since 5"
    [(_, [dead])] = feeds.proposals(1_005.0, may_give_up=True)
    assert dead == Decided("dead", number=int(B))
    feeds.decide(decided(dead), 5, 1_005.0)
    [(_, [lost])] = feeds.proposals(1_030.0, may_give_up=True)
    assert lost == Decided("give_up", "radar@0", 2, "passed")


@pytest.mark.parametrize("pause_ms", [900.0, 90_000.0])
@pytest.mark.parametrize("lost", [None, A, B])
@pytest.mark.parametrize("first", [A, B])
def test_a_source_that_was_silent_for_a_while_kills_no_adapter(first: Feed, lost: Feed | None, pause_ms: float) -> None:
    """S3: the first copy after the silence shows a gap, and the other adapter brings what is missing a moment later;
    one that does not is declared dead, counted from when the other one went on. Whichever adapter was the last before
    the silence, or had lost that message."""
    feeds = MergedFeeds([FEED], MergeSettings(recovers=False, deadline_ms=60_000), silent_ms=1_000)
    other = Feed(1 - first)
    before = [(A, 0), (B, 0), *((slot, 1) for slot in (A, B) if slot is not lost)]
    for at, (slot, sequence) in enumerate(before):
        feeds.take(copy(at, slot, "radar@0", sequence), 0.0)
    now = pause_ms
    is_counted = lost is other and pause_ms < 1_000  # it has brought nothing since before the pause
    feeds.take(copy(4, first, "radar@0", 3), now)
    [(_, [suspected])] = feeds.proposals(now + 25, may_give_up=True)
    assert suspected == Decided("suspect", "radar@0", 2)
    feeds.decide(decided(suspected), 5, now + 25)
    dead_at = 1_000.0 if is_counted else now + 1_000
    assert feeds.due_ms() == dead_at
    assert not [*feeds.proposals(dead_at - 1, may_give_up=True)]
    [(_, [dead])] = feeds.proposals(dead_at, may_give_up=True)
    assert dead == Decided("dead", number=int(other))
    found = feeds.take(copy(6, other, "radar@0", 2), now + 50)
    assert [(one.copy.stamps.sequence, one.release and one.release.is_late) for one in found] == [
        (2, False),
        (3, False),
    ]


def test_a_state_of_a_commit_that_failed_never_counts() -> None:
    """Q1: not even when later commits have higher numbers."""
    places = SourcePlaces()
    old = SourceState(1, places.next_number(), FEED, "radar", 3, [], [], [])
    stored = [places.put(old), places.put(SourceState(1, places.next_number(), FEED, "radar", 4, [], [], []))]
    assert len({key for key, _ in stored}) == 2
    again = SourcePlaces()
    assert again.restore(stored, 1) == ([old], {(FEED, "radar")})
    newer = SourceState(1, again.next_number(), FEED, "radar", 5, [], [], [])
    assert newer.number == 3
    key, value = again.put(newer)
    assert key == stored[1][0], "it replaces the one that failed"
    assert SourcePlaces().restore([stored[0], (key, value)], 3) == ([newer], set())


def test_what_was_released_of_a_feed_that_is_configured_no_more_holds_up_nothing() -> None:
    """S3: its record cannot be read again, and what was released behind it is offered."""
    feeds = MergedFeeds([FEED], SETTINGS)
    released = [one for n in range(2) for one in feeds.take(copy(n, A, "radar@0", n), 0.0)]
    pending = [PendingMessage(one.copy.message, 0, one.copy.position, 0.0, [], release=one.release) for one in released]
    written, blob = feeds.save(2, pending)
    again = MergedFeeds([FEED], SETTINGS)
    again.restore(written.items(), blob, 0.0)
    assert not again.found_again(copy(1, A, "radar@0", 1))
    assert again.positions() == {0, 1}
    assert [one.copy.position for one in again.refused(0)] == [1]
    assert again.positions() == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"00/0", None),
        (b"00/2", b""),
        (b"00/0", b""),
        (b"00/0", b"\x01"),
        (b"00/1", b"\x98\x02\x01\xa1f\xa1s\xc0\x90\x90\x90"),
        (b"00/1", b"\x99\x01\x01\xa1f\xa1s\xc0\x90\x90\x90" + DEEP),
    ],
)
def test_malformed_states(key: bytes, value: bytes | None) -> None:
    """Q1: they are left out, with the reason."""
    with pytest.raises(RecordError):
        checked(key, value)


def record(key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> MemoryRecord:
    made = MemoryRecord(("egress", 0), key, value, headers)
    made.stored_at(7, 5)
    return made


MARKED = ingress_copy(FEED, A, message(1), 0, 2)


@pytest.mark.parametrize("epoch", [0, 7])
def test_records_round_trip(epoch: int) -> None:
    """S3: decisions, and copies that the home writes itself."""
    found = read(record(*decision_record(FEED, [Decided("give_up", "radar@0", 3, "full"), Decided("pause")], epoch)))
    decisions = DecisionRecord(1, FEED, [Decided("give_up", "radar@0", 3, "full"), Decided("pause")])
    assert found == FromHome(epoch, decisions)
    copied = read(record(*copy_record(record(MARKED.key, MARKED.value, MARKED.headers), epoch)))
    assert isinstance(copied, FromHome)
    assert copied.epoch == epoch
    own = copied.record
    assert isinstance(own, FeedCopy)
    assert (own.instruction, own.instructions, own.place, own.stamps) == (None, [], (0, 7), message(1))


def test_a_gateway_that_shares_shards_with_none_writes_no_epoch() -> None:
    """G14: its records are those of earlier versions."""
    assert decision_record(FEED, []).headers == [("feeds", b"1")]
    assert copy_record(record(MARKED.key, MARKED.value, MARKED.headers)).headers[:2] == [
        ("feeds", b"1"),
        MARKED.headers[0],
    ]


def test_a_restart_knows_the_epoch() -> None:
    """G6: it belongs to the position; one that has none is of an earlier version, or shares shards with none."""
    feeds = MergedFeeds([FEED])
    assert feeds.counts(3)
    assert not feeds.counts(2)
    _, raw = feeds.save(10, [])
    again = MergedFeeds([FEED])
    again.restore([], raw, 0.0)
    assert [again.counts(epoch) for epoch in (2, 3, 0, 4, 3)] == [False, True, True, True, False]


INSTR = ("instr", Instruction(0, 1, 0, 1, 5).encode())


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (b"feeds/flight/radar@0", []),
        (b"feeds/flight/radar@0", [("feeds", b"2")]),
        (b"feeds/flight", [("feeds", b"1")]),
        (b"feeds/flight", [("feeds", b"1"), ("epoch", b"1")]),
        (b"feeds/flight/radar@0", [("feeds", b"1"), ("epoch", b"0"), *MARKED.headers, INSTR]),
        (b"feeds/flight/radar@0", [("feeds", b"1"), ("epoch", b"-1"), *MARKED.headers, INSTR]),
        (b"feeds/flight/radar@0", [("feeds", b"1"), ("epoch", None), *MARKED.headers, INSTR]),
        (b"feeds/flight/radar@0", MARKED.headers),
        (b"feeds/flight/radar", [*MARKED.headers, INSTR]),
        (b"feeds/flight/", [*MARKED.headers, INSTR]),
        (b"feeds/fl ight/radar@0", [*MARKED.headers, INSTR]),
        (b"feeds/flight/\xff@0", [*MARKED.headers, INSTR]),
        (b"feeds/flight/radar@0", [*MARKED.headers, ("instr", b"0;1;0;1;5;nobody")]),
        (b"feeds/flight/radar@0", [*MARKED.headers[:3], ("props", b"\xff"), INSTR]),
        (
            b"feeds/flight/radar@0",
            [("feeds", b"1"), *ingress_headers("", "", Meta(0, "", None, 0, None), b"\0"), INSTR],
        ),
    ],
)
def test_malformed_records(key: bytes, headers: list[tuple[str, bytes]]) -> None:
    """S3: a record error each, never another one."""
    with pytest.raises(RecordError):
        read(record(key, b"", headers))


@pytest.mark.parametrize(
    "decision",
    [Decided("give_up", "radar@0", 1, "because"), Decided("dead", number=2)],
)
def test_malformed_decisions(decision: Decided) -> None:
    """S3: a record error each, never another one."""
    with pytest.raises(RecordError):
        read(record(*decision_record(FEED, [decision])))


def test_decisions_that_are_nested_too_deeply() -> None:
    """S3: the record is malformed, and the shard goes on."""
    written = decision_record(FEED, [])
    with pytest.raises(RecordError):
        read(record(written.key, b"\x94\x01\xa1f\x90" + DEEP, written.headers))


def test_a_message_without_the_mark_is_one_like_others() -> None:
    """S3."""
    headers = [*ingress_headers("", "", Meta(0, "", None, 0, None), b"\0"), INSTR, ("router", b"active")]
    assert read(record(b"feeds/flight/radar@0", b"", headers)) is None
