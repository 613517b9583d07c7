"""Client presence as a fold: the same in whatever order events come, and however many copies (R12)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pipelines.presence.attachments import (
    GATEWAY_LOST,
    Known,
    ReportedEvent,
    after,
    is_news,
    known_from,
    last_used_ms,
    revised,
    state_of,
)
from schemas.states import GatewayState

MOST = 100
FOUND_MS = 50


def void(name: str, before: int) -> GatewayState:
    """A gateway whose attachments of boots before `before` are void since `FOUND_MS`."""
    return GatewayState(gateway=name, alive=False, boot=before - 1, at_ms=FOUND_MS)


GATEWAYS = st.dictionaries(st.sampled_from("gh"), st.integers(0, 3)).map(
    lambda befores: {name: void(name, before) for name, before in befores.items()}
)


def reported(epoch: int, seq: int, event: str, gateway: str = "g", **more: object) -> ReportedEvent:
    fields = {"attachment": "", "boot": 5, "at_us": 1000 * epoch + seq, "peer": "", "protocol": "", "reason": ""}
    return ReportedEvent(**{**fields, "user": "", **more}, epoch=epoch, seq=seq, event=event, gateway=gateway)  # type: ignore[arg-type]


EVENTS = st.builds(
    reported,
    epoch=st.integers(1, 4),
    seq=st.integers(0, 3),
    event=st.sampled_from(["connected", "heartbeat", "disconnected", "lost"]),
    gateway=st.sampled_from(["g", "h"]),
    attachment=st.sampled_from(["", "lan", "satellite"]),
    boot=st.integers(0, 2),
    reason=st.sampled_from(["", "keep_alive_timeout"]),
)


@given(events=st.lists(EVENTS, max_size=12), data=st.data())
def test_order_copies_and_batches_make_no_difference(events: list[ReportedEvent], data: st.DataObject) -> None:
    """R12: a reference that knows all events at once, and folds of the same events shuffled, repeated and cut."""
    shuffled = data.draw(
        st.permutations([*events, *data.draw(st.lists(st.sampled_from(events), max_size=5))] if events else [])
    )
    cut = data.draw(st.integers(0, len(shuffled)))
    folded = after(after([], shuffled[:cut], MOST), shuffled[cut:], MOST)
    assert folded == reference(events)
    assert after(folded, shuffled, MOST) == folded
    assert not is_news(folded, after(folded, shuffled, MOST))


def reference(events: list[ReportedEvent]) -> list[Known]:
    places = sorted({(event.gateway, event.attachment) for event in events})
    found = []
    for place in places:
        there = [event for event in events if (event.gateway, event.attachment) == place]
        newest = [e for e in there if (e.boot, e.epoch) == max((one.boot, one.epoch) for one in there)]
        found.append(Known(min(newest), max(newest)))
    return found


@given(events=st.lists(EVENTS, min_size=1, max_size=12), gateways=GATEWAYS)
def test_online_while_any_attachment_is_live(events: list[ReportedEvent], gateways: dict[str, GatewayState]) -> None:
    """R12: an attachment is live if its newest event says so and its gateway's boot is not void."""
    known = after([], events, MOST)
    published = state_of("c", known, gateways)
    befores = {name: gateway.void_before for name, gateway in gateways.items()}
    expected = [one.live and one.last.boot >= befores.get(one.last.gateway, 0) for one in known]
    assert [one.live for one in published.attachments] == expected
    assert published.online == any(expected)
    assert revised(state_of("c", known, {}), gateways) == published, "judged later, the same"
    assert revised(published, gateways) == published
    used_ms = last_used_ms(known, gateways, 99)
    assert used_ms == (99 if published.online else FOUND_MS if any(one.live for one in known) else 0)


def test_a_lost_gateway_ends_its_clients_when_it_was_found_gone() -> None:
    """R12: not when they had come, and not again when it is back without them."""
    came = after([], [reported(7, 0, "connected"), reported(8, 0, "connected", gateway="h")], MOST)
    lost = after(came, [reported(8, 1, "lost", gateway="h", reason="keep_alive_timeout")], MOST)
    online = state_of("c", lost, {})
    gone = {"g": GatewayState(gateway="g", alive=False, boot=5, at_ms=50)}
    published = revised(online, gone)
    assert (published.online, published.at_us, published.reason) == (False, 50_000, GATEWAY_LOST)
    assert state_of("c", lost, gone) == published
    back = {"g": GatewayState(gateway="g", alive=True, boot=6, at_ms=60)}
    assert revised(published, back) == published


def test_a_clock_that_was_set_back_makes_nobody_offline() -> None:
    """R12: boots grow whatever the clock does, so a later process's connection counts, with an earlier epoch too."""
    ahead = after([], [reported(900, 0, "connected", boot=900), reported(950, 1, "lost", boot=900)], MOST)
    back = after(ahead, [reported(20, 0, "connected", boot=901)], MOST)
    gateways = {"g": GatewayState(gateway="g", alive=True, boot=901, at_ms=1)}
    assert state_of("c", back, gateways).online
    assert after(back, [reported(960, 0, "lost", boot=900)], MOST) == back


def test_what_is_told() -> None:
    """R12: since when and from where from the first event of the epoch, why not from the last."""
    came = reported(7, 0, "connected", peer="10.0.0.1:5", protocol="mqtt5", user="alice")
    lost = reported(7, 1, "lost", reason="keep_alive_timeout")
    for events in ([came, lost], [lost, came]):
        published = state_of("c", after([], events, MOST), {})
        (one,) = published.attachments
        assert (one.since_us, one.at_us, one.peer, one.user) == (7000, 7001, "10.0.0.1:5", "alice")
        assert (published.online, published.reason, published.at_us) == (False, "keep_alive_timeout", 7001)
    (only,) = state_of("c", after([], [came], MOST), {"g": void("g", 6)}).attachments
    assert not only.live
    assert state_of("c", after([], [came], MOST), {"g": void("g", 6)}).reason == GATEWAY_LOST


def test_a_heartbeat_is_news_only_if_it_revives() -> None:
    """R12: a client that is known to live is reported once."""
    came = after([], [reported(1, 0, "connected")], MOST)
    assert not is_news(came, after(came, [reported(1, 1, "heartbeat")], MOST))
    gone = after(came, [reported(1, 2, "lost")], MOST)
    assert is_news(came, gone)
    assert is_news(gone, after(gone, [reported(1, 3, "heartbeat")], MOST)), "it was not lost after all"


@given(events=st.lists(EVENTS, max_size=12), most=st.integers(1, 4))
def test_no_more_attachments_than_allowed_and_live_ones_last_to_go(events: list[ReportedEvent], most: int) -> None:
    """R12, bounded: what is forgotten is no better than what is kept."""
    everything, kept = after([], events, MOST), after([], events, most)
    assert len(kept) <= most
    if len(everything) <= most:
        assert kept == everything


def test_the_state_of_the_fold_survives_json() -> None:
    known = after([], [reported(1, 0, "connected"), reported(2, 0, "lost", gateway="h")], MOST)
    assert msgspec.json.decode(msgspec.json.encode(known), type=list[Known]) == known


@given(events=st.lists(EVENTS, min_size=1, max_size=12), data=st.data())
def test_a_fold_that_begins_with_what_was_told_tells_nothing_again(
    events: list[ReportedEvent], data: st.DataObject
) -> None:
    """R12: its own state lost, any of the events replayed; what is new then counts as it would have."""
    published = state_of("c", after([], events, MOST), {})
    begun = known_from(published)
    replayed = after(begun, data.draw(st.lists(st.sampled_from(events))), MOST)
    assert state_of("c", replayed, {}) == published
    assert not is_news(begun, replayed)
    news = reported(5, 0, "connected")
    now, as_ever = (state_of("c", after(known, [news], MOST), {}) for known in (replayed, after([], events, MOST)))
    assert now == as_ever
    assert is_news(replayed, after(replayed, [news], MOST))
