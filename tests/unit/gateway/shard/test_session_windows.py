"""The windows of a session: packet ids, Receive Maximum, what is sent again, what the log says (MQTT 5.0, 4.9; G8)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.messages import Delivery, Message, PendingMessage
from gateway.shard.session import Session
from gateway.shard.session_records import window_record
from schemas.session_log import OutgoingRecord, WindowRecord, encode


def message_at(partition: int, offset: int) -> Message:
    return Message(f"id-{offset}", "s", "a", b"x" * 10, 2, False, None, b"\0", partition, offset, 0)


def delivery(offset: int, qos: int, row: int | None = None) -> Delivery:
    message = message_at(0, offset)
    return Delivery("c", PendingMessage(message, 0, offset, 0.0, []), qos, False, (), row=row)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 2)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("finish"), st.integers(0, 10)),
        st.tuples(st.just("reconnect"), st.integers(1, 6)),
    ),
    max_size=80,
)


def pop_in_flight(session: Session, number: int) -> Delivery:
    """Ends the exchange of one of the deliveries in flight."""
    ids = list(session.in_flight)
    return session.in_flight.pop(ids[number % len(ids)])


@given(steps)
def test_packet_ids_are_unique_and_the_window_and_the_order_are_kept(steps: list[tuple[str, int]]) -> None:
    session, offered = Session("c", 0, 0), 0
    session.receive_maximum = 3
    first_sent: list[int] = []
    for word, number in steps:
        if word == "offer":
            session.enqueue(delivery(offered, number))
            offered += 1
        elif word == "take":
            for taken in session.take(number):
                taken.sent = True
                if not taken.dup:
                    first_sent.append(taken.pending.message.offset)
        elif word == "finish" and session.in_flight:
            pop_in_flight(session, number)
        elif word == "reconnect":
            session.receive_maximum = number
            again = session.resend()
            assert len(session.in_flight) <= number
            assert all(taken.dup for taken in again)
        assert all(packet_id == taken.packet_id for packet_id, taken in session.in_flight.items())
        in_use = [e.packet_id for e in (*session.in_flight.values(), *session.queue) if e.packet_id]
        assert len(in_use) == len(set(in_use))
        assert 0 not in session.in_flight
        assert session.queued_bytes == sum(e.pending.message.size for e in session.queue)
        logged = {(o.partition, o.offset): o.packet_id for o in window_record(session).outgoing}
        sent = [e for e in (*session.in_flight.values(), *session.queue) if e.packet_id and e.qos == 2]
        assert len(session.put_back) <= 6
        assert logged == {(0, e.pending.message.offset): e.packet_id for e in sent}
    assert first_sent == sorted(first_sent)


@given(st.lists(st.sampled_from([None, 1, 2]), max_size=12), st.integers(0, 12), st.integers(0, 20), st.integers(0, 3))
def test_forgetting_what_is_in_the_spool_keeps_the_order(
    rows: list[int | None], kept: int, committed: int, in_flight: int
) -> None:
    """G9, R8: what leaves memory is in the spool for good, and what stays is before it or behind it."""
    session = Session("c", 0, 0)
    session.receive_maximum = in_flight
    for n, row in enumerate(rows):
        session.enqueue(delivery(n, 2, n + 1 if row else None))
    for taken in session.take(in_flight):
        taken.sent = True
    session.receive_maximum = max(0, in_flight - 1)
    session.resend()
    before = [e.pending.message.offset for e in session.queue]
    session.forget_spooled(committed)
    left = [e.pending.message.offset for e in session.queue], [e.pending.message.offset for e in session.tail]
    gone = [offset for offset in before if offset not in left[0] + left[1]]
    assert len(gone) == session.backlog
    assert left[0] + gone + left[1] == before
    assert all(offset + 1 <= committed for offset in gone)
    if gone:
        assert session.loaded_row == gone[0]
    assert not any(e.packet_id for e in session.tail)


def test_what_was_finished_before_a_restart_does_not_come_again() -> None:
    """G8: released, it is PUBREL's turn; not released, it keeps its packet id and is sent with DUP."""
    before = Session("c", 0, 0)
    for n in range(3):
        before.enqueue(delivery(n, 2))
    before.take(3)
    before.in_flight[2].released = True
    before.settle(before.in_flight.pop(1))
    session = Session("c", 0, 0)
    session.recover(window_record(before))
    assert [session.restore(delivery(n, 2)) for n in range(4)] == [False, False, True, True]
    third = delivery(2, 2)
    session.restore(third)
    assert (third.packet_id, third.dup) == (3, True)
    session.enqueue(delivery(9, 2))
    assert session.take(1)[0].packet_id == 1, "2 and 3 are not free"
    session.settle(third)
    again = Session("c", 0, 0)
    again.recover(window_record(session))
    assert not again.restore(delivery(2, 2))
    session.forget_restored()
    assert set(session.restored) == {(0, 1)}, "the one whose PUBCOMP is due"


def test_an_exchange_whose_message_does_not_come_again_after_a_restart_is_released() -> None:
    """[MQTT-3.10.4-3], [MQTT-2.2.1-4]: its subscription has ended before it was read again. The client may have it, and
    keeps the packet id until PUBREL comes; so no other message gets it before PUBCOMP."""
    session = Session("c", 0, 0)
    session.recover(WindowRecord([OutgoingRecord(1, 0, 18, False), OutgoingRecord(2, 0, 19, True)], [], 0))
    assert session.forget_restored() == [1]
    written = window_record(session).outgoing
    assert {(record.packet_id, record.released) for record in written} == {(1, True), (2, True)}
    session.enqueue(delivery(20, 2))
    assert [taken.packet_id for taken in session.take(1)] == [3]
    session.completed_before(1)
    assert session.forget_restored() == []
    assert [record.packet_id for record in session.restored.values()] == [2]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("offer"), st.integers(0, 2)),
            st.tuples(st.just("take"), st.integers(1, 5)),
            st.tuples(st.just("finish"), st.integers(0, 10)),
            st.tuples(st.just("reconnect"), st.integers(1, 6)),
            st.tuples(st.just("put back"), st.integers(0, 3)),
        ),
        max_size=120,
    )
)
def test_the_log_tells_what_is_finished_from_what_is_not(steps: list[tuple[str, int]]) -> None:
    """G8: by a cursor; nothing finished at QoS 2 comes again, nothing else is taken for finished."""
    session, offered, settled = Session("c", 0, 0), 0, set()
    session.expiry_s, session.receive_maximum = 60, 4
    for word, number in steps:
        if word == "offer":
            session.enqueue(delivery(offered, number))
            offered += 1
        elif word == "take":
            for taken in session.take(number):
                taken.sent = bool(number % 2)
                if not taken.qos:
                    settled.add(taken.pending.message.offset)
        elif word == "finish" and session.in_flight:
            done = pop_in_flight(session, number)
            settled.add(done.pending.message.offset)
            if done.qos == 2:
                session.settle(done)
        elif word == "reconnect":
            session.receive_maximum = number
            session.resend()
        elif word == "put back":
            unsent = [e for e in session.in_flight.values() if not e.sent]
            session.requeue(unsent[len(unsent) - number :])
        after = Session("c", 0, 0)
        after.recover(window_record(session))
        for e in (*session.in_flight.values(), *session.queue):
            if e.qos:
                assert after.restore(delivery(e.pending.message.offset, e.qos))
        for offset in range(offered):
            if offset in settled and after.settled.covers(delivery(offset, 2)):
                assert not after.restore(delivery(offset, 2))


def test_the_record_stays_small_however_much_is_settled() -> None:
    """G8: its size is bounded by the window, not by how much goes through it between two checkpoints."""
    session, sizes = Session("c", 0, 0), []
    session.expiry_s, session.receive_maximum = 60, 100
    for n in range(50_000):
        held = PendingMessage(message_at(n % 8, n), 0, n if n % 3 else -1, 0.0, [], number=n + 1)
        session.enqueue(Delivery("c", held, 2, False, (), row=n if n % 5 == 0 else None))
        session.take(1)
        if n >= 100:
            session.settle(session.in_flight.pop(next(iter(session.in_flight))))
        if n % 1_000 == 0:
            sizes.append(len(encode(window_record(session))))
    assert max(sizes) < 10_000


def test_each_way_that_may_bring_a_message_again_has_its_own_cursor() -> None:
    """G8: a message settled as an instruction says nothing of direct deliveries, and of rows in the spool."""
    session = Session("c", 0, 0)
    for held, row in (
        (PendingMessage(message_at(0, 7), 0, 50, 0.0, [], number=1), None),
        (PendingMessage(message_at(1, 8), 0, -1, 0.0, [], number=2), None),
        (PendingMessage(message_at(1, 3), 0, -1, 0.0, []), 4),
    ):
        session.settle(Delivery("c", held, 2, False, (), row=row))
    after = Session("c", 0, 0)
    after.recover(window_record(session))

    def is_open(position: int, partition: int, offset: int, row: int | None = None) -> bool:
        held = PendingMessage(message_at(partition, offset), 0, position, 0.0, [])
        return after.restore(Delivery("c", held, 2, False, (), row=row))

    assert [is_open(50, 0, 7), is_open(49, 0, 6), is_open(51, 0, 8), is_open(50, 1, 7)] == [False, False, True, True]
    assert [is_open(-1, 1, 8), is_open(-1, 1, 9), is_open(-1, 0, 7)] == [False, True, True]
    assert [is_open(-1, 0, 0, 4), is_open(-1, 0, 0, 5), is_open(-1, -1, 0, 5)] == [False, True, True]
