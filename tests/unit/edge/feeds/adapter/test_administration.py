"""Administrative messages of two adapters, over all interleavings, crashes and switches (S4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.registry_records import AdministrativeResult, RegistryKey
from feeds.synchronise import OnRefusal, SynchroniseSettings
from tests.unit.edge.feeds.adapter.administration_pair import FEED, KEEP_S, Pair

STREAM_AFTER = "src@1"
SETTINGS = [SynchroniseSettings(threshold=6, on_refusal=policy, put_off=2) for policy in OnRefusal]
ACTIONS = [
    "advance",
    "receive",
    "step",
    "say",
    "request",
    "switch",
    "crash",
    "crash and say later",
    "ghost",
    "misjudge",
]
CALM = ["advance", "work", "work", "request", "receive", "step", "say", "switch"]


def run(pair: Pair, actions: list[tuple[str, int, int]]) -> None:
    """`(action, which adapter, a number)`, one after the other."""
    ghosts: list[list[object]] = [[], []]
    for action, which, number in actions:
        side = pair.sides[which]
        match action:
            case "advance":
                for _ in range(number):
                    side.advance()
            case "receive":
                side.receive(number)
            case "work":
                side.work()
            case "step":
                side.step()
            case "say":
                side.say()
            case "request":
                pair.request(number or None)
            case "switch":
                pair.preferred = "backup" if pair.preferred == "active" else "active"
            case "crash":
                side.start(number)
            case "crash and say later":
                ghosts[which] = list(side.unsent)
                side.start(number)
            case "ghost":  # what a process that is gone had said reaches the topic now
                pair.topic += ghosts[which]  # type: ignore[arg-type]
                ghosts[which] = []
            case "misjudge":
                side.thinks_other_is_there = not side.thinks_other_is_there


def actions(kinds: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 4)), max_size=60)


@given(st.sampled_from(SETTINGS), actions(ACTIONS))
def test_never_two_messages_at_one_place(settings: SynchroniseSettings, drawn: list[tuple[str, int, int]]) -> None:
    """Whoever crashes, whatever reaches the topic late, and whatever they think of each other (S4)."""
    pair = Pair(settings)
    run(pair, drawn)
    pair.settle()
    doubled = {place: found for place, found in pair.places().items() if len(found) > 1}
    assert not doubled
    assert pair.results().keys() == {b"%d" % (number + 1) for number in range(pair.requested)}, "each has a result"


@given(st.sampled_from(SETTINGS), actions(CALM))
def test_each_is_sent_at_one_place_or_cancelled(
    settings: SynchroniseSettings, drawn: list[tuple[str, int, int]]
) -> None:
    """Without crashes, over any delays and switches: at one place, in both logs if the result says so (S4)."""
    pair = Pair(settings)
    run(pair, drawn)
    pair.settle()
    for payload, results in pair.results().items():
        outcome = results[-1].outcome
        places = [place for place, found in pair.places().items() if payload in found]
        logs = sum(any(payload == found for _, part, found in side.log if part) for side in pair.sides)
        if outcome == "both":
            assert len(places) == 1
            assert logs == 2
            assert places[0] == (results[-1].after, results[-1].part)
        elif outcome == "alone":
            assert len(places) == 1
            assert logs == 1
        else:
            assert not places


def calm_pair(policy: OnRefusal = OnRefusal.SEND) -> Pair:
    return Pair(SynchroniseSettings(threshold=6, on_refusal=policy, put_off=2))


def test_both_send_at_the_same_point() -> None:
    pair = calm_pair()
    for _ in range(2):
        pair.request()
    pair.settle()
    active, backup = ([entry for entry in side.log if entry[0] < 10] for side in pair.sides)
    assert active == backup
    assert [entry for entry in active if entry[1]] == [(3, 1, b"1"), (3, 2, b"2")]
    assert {one.outcome for found in pair.results().values() for one in found} == {"both"}


@pytest.mark.parametrize(
    ("policy", "outcome", "announced"), [("send", "alone", 1), ("put_off", "both", 2), ("cancel", "cancelled", 1)]
)
def test_a_backup_that_is_ahead_refuses(policy: str, outcome: str, announced: int) -> None:
    """The message goes alone, is put off, or is cancelled, as set (S4)."""
    pair = calm_pair(OnRefusal(policy))
    active, backup = pair.sides
    active.other_last = lambda: 0  # the active does not know yet how far the backup is
    for _ in range(5):
        backup.advance()
    pair.request()
    pair.settle()
    (result,) = [found[-1] for found in pair.results().values()]
    assert (result.outcome, result.reason) == (outcome, "" if outcome == "both" else "the backup has refused: passed")
    assert len(pair.announcements()) == announced


@pytest.mark.parametrize(("policy", "outcome"), [("send", "alone"), ("cancel", "cancelled")])
def test_a_backup_that_is_too_far_behind_refuses_and_says_so(policy: str, outcome: str) -> None:
    """Beyond the threshold, which is 6 messages (S4)."""
    pair = calm_pair(OnRefusal(policy))
    active = pair.sides[0]
    for _ in range(20):
        active.advance()
    pair.request()
    pair.settle()
    (result,) = [found[-1] for found in pair.results().values()]
    assert (result.outcome, result.reason) == (outcome, "the backup has refused: behind")
    assert len(pair.places()) == (policy == "send")


def test_one_alone_sends_alone() -> None:
    pair = calm_pair()
    pair.sides[0].thinks_other_is_there = False
    pair.request()
    for _ in range(8):
        active = pair.sides[0]
        active.receive(9)
        active.step()
        active.say()
        active.advance()
    (results,) = pair.results().values()
    assert results[-1].outcome == "alone"
    assert pair.places() == {(results[-1].after, 1): {b"1"}}


def test_a_source_that_has_ended_cancels() -> None:
    pair = calm_pair()
    pair.request(4)
    for _ in range(2):
        for side in pair.sides:
            side.receive(9)
            side.step()
            side.say()
    pair.sides[0].has_ended = True
    pair.settle()
    (results,) = pair.results().values()
    assert results[0].outcome == "cancelled"
    assert "ended" in results[0].reason


def test_what_is_asked_of_an_unknown_stream_is_refused_and_removed_later() -> None:
    pair = calm_pair()
    pair.request()
    pair.sides[0].last.clear()
    active = pair.sides[0]
    for _ in range(2):
        active.receive(9)
        active.step()
        active.say()
    (results,) = pair.results().values()
    assert results[-1] == AdministrativeResult(outcome="refused", reason="this feed has no source stream 'src@0'")
    active.now += KEEP_S
    active.step()
    active.say()
    assert [key.kind for key, record in pair.topic if record is None] == ["request", "announcement", "answer", "result"]
    active.receive(9)
    active.step()
    assert not active.unsent


def test_requests_whose_payloads_do_not_fit_are_refused_until_others_are_removed() -> None:
    """By the acting adapter; both remember `payload_bytes` at most, whoever fills the topic."""
    pair = Pair(SynchroniseSettings(threshold=6, payload_bytes=3))
    for _ in range(4):
        pair.request()
    pair.settle()
    outcomes = [found[-1].outcome for _, found in sorted(pair.results().items())]
    assert outcomes == ["both", "both", "both", "refused"]
    refused = pair.results()[b"4"][-1]
    assert "administration.payload_bytes" in refused.reason
    for side in pair.sides:
        side.now += KEEP_S
    pair.settle()
    pair.request()
    pair.settle()
    assert pair.results()[b"5"][-1].outcome == "both"
    assert len({place for place, found in pair.places().items() if found}) == 4


def test_a_place_that_both_announce_is_the_first_ones() -> None:
    """A switch while announcements are on their way: both adapters announce at the same place (S4)."""
    pair = calm_pair()
    one, other = pair.sides
    for number, side in enumerate((one, other)):
        pair.preferred = side.slot
        pair.request()
        side.read += number  # the second one has not read the first request
        side.receive(1)
        side.step()
    assert len({(found.after, found.part) for side in pair.sides for _, found in side.unsent}) == 1  # type: ignore[union-attr]
    for side in pair.sides:
        side.say()
    for side in pair.sides:
        for _ in range(6):  # to beyond the place, before the answers come
            side.receive(4)
            side.step()
            side.advance()
    pair.settle()
    assert all(len(found) == 1 for found in pair.places().values())
    assert {results[-1].outcome for results in pair.results().values()} <= {"both", "alone"}
    assert {payload for found in pair.places().values() for payload in found} == {b"1", b"2"}


@pytest.mark.parametrize("is_late", [True, False])
def test_what_a_dead_process_has_announced_comes_late(is_late: bool) -> None:
    """Of two announcements of one request the first on the topic counts, for both adapters (S4)."""
    pair = calm_pair()
    active = pair.sides[0]
    pair.request()
    active.receive(1)
    active.step()
    ghost = list(active.unsent)
    active.advance()
    active.start()
    active.step()
    ours = list(active.unsent)
    assert ghost[0][1] != ours[0][1], "at another place"
    pair.topic += [*ours, *ghost] if is_late else [*ghost, *ours]
    active.unsent = []
    pair.settle()
    (place,) = pair.places()
    assert place == ((4, 1) if is_late else (3, 1))
    assert [found[-1].outcome for found in pair.results().values()] == ["both"]


def test_the_first_answer_binds() -> None:
    """A backup refuses and dies, and what it had sent is lost; its successor accepts; the refusal was first (S4)."""
    pair = calm_pair(OnRefusal.CANCEL)
    active, backup = pair.sides
    active.other_last = lambda: 0
    for _ in range(5):
        backup.advance()
    pair.request()
    active.work()
    backup.receive(9)
    backup.step()
    refusal = list(backup.unsent)
    backup.start(lost=5)
    backup.step()
    pair.topic += [*refusal, *backup.unsent]
    backup.unsent = []
    pair.settle()
    assert [found[-1].outcome for found in pair.results().values()] == ["cancelled"]
    assert not pair.places()


def test_what_was_sent_and_lost_is_sent_again() -> None:
    """A result may be on the topic before Kafka has the message itself (S4)."""
    pair = calm_pair()
    pair.sides[0].thinks_other_is_there = False
    active = pair.sides[0]
    pair.request()
    for _ in range(4):
        active.work()
        active.advance()
    active.work()
    assert pair.places()
    active.start(lost=3)
    assert not pair.places()
    pair.settle()
    assert pair.places() == {(3, 1): {b"1"}}


def test_the_backup_sends_what_it_accepted_after_the_active_is_done() -> None:
    """It reads answer and result at once, far behind (S4)."""
    pair = calm_pair()
    active, backup = pair.sides
    pair.request()
    active.work()
    backup.work()
    for _ in range(5):
        active.work()
        active.advance()
    active.work()
    assert [found[-1].outcome for found in pair.results().values()] == ["both"]
    for _ in range(5):
        backup.work()
        backup.advance()
    assert [(number, part) for number, part, _ in backup.log] == [(1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (5, 0)]


def test_adapters_that_come_back_do_not_send_what_was_given_up() -> None:
    """The gateways have said so while none was there (S4)."""
    pair = calm_pair()
    pair.request()
    for side in pair.sides:
        side.work()
    pair.topic.append((RegistryKey("result", FEED, "id-1"), AdministrativeResult(outcome="unknown", after=3, part=1)))
    for side in pair.sides:
        side.start()
    pair.settle()
    assert not pair.places()
    assert [[one.outcome for one in found] for found in pair.results().values()] == [["unknown"]]


@pytest.mark.parametrize("acting_ended", [False, True], ids=["in its place", "adopted"])
def test_what_waits_in_an_epoch_that_is_over_is_cancelled(acting_ended: bool) -> None:
    """Its number does not come any more (S4)."""
    pair = calm_pair()
    pair.request(lead=5)
    for side in (*pair.sides, *pair.sides):
        side.work()
    active, backup = pair.sides
    if acting_ended:
        backup.thinks_other_is_there = False
    left = [backup] if acting_ended else [active, backup]
    for side in left:
        side.last["other@7"] = side.last["srcs@1"] = 5
        side.work()
    assert not pair.results(), "other sources say nothing of this one"
    for side in left:
        side.last[STREAM_AFTER] = 0
        side.work()
        side.work()
    assert [[one.outcome for one in found] for found in pair.results().values()] == [["cancelled"]]
    assert "epoch" in pair.results()[b"1"][0].reason
    pair.settle()
    assert not pair.places()


@pytest.mark.parametrize("how", ["the source ends", "a new epoch begins"])
def test_what_is_read_back_after_its_number_and_the_end_is_still_sent(how: str) -> None:
    """The backup has accepted it, and sends it at that place (S4)."""
    pair = calm_pair()
    active, backup = pair.sides
    pair.request(lead=2)
    active.work()
    backup.work()
    for side in pair.sides:
        side.advance()
        side.advance()
        if how == "the source ends":
            side.has_ended = True
        else:
            side.last[STREAM_AFTER] = 0
    for side in (*pair.sides, *pair.sides):
        side.work()
    assert [[one.outcome for one in found] for found in pair.results().values()] == [["both"]]
    assert [[number for number, part, _ in side.log if part] for side in pair.sides] == [[2], [2]]
