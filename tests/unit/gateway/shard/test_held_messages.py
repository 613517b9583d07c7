"""Messages that a share group has passed over, against a plain list (R6)."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.held_messages import ConversationKey, HeldMessages
from gateway.shard.messages import Delivery, Message, PendingMessage
from mqtt.properties import NO_PROPERTIES

KEYS = [ConversationKey("s", str(n)) for n in range(4)]
steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "wait", "take", "drop", "put in front"]), st.integers(0, 3), st.sampled_from("xyz")
    ),
    max_size=60,
)


def delivery(offset: int) -> Delivery:
    message = Message("", "s", "a", b"", 1, False, None, NO_PROPERTIES, 0, offset, 0)
    return Delivery("", PendingMessage(message, 0, 0, 0.0, []), 1, False, ())


@given(steps)
def test_it_finds_what_waits_for_a_member_and_notices_what_else_happens(steps: list[tuple[str, int, str]]) -> None:
    held, queue, keys, offset = HeldMessages(), deque[Delivery](), dict[int, ConversationKey](), 0
    for step, number, client in steps:
        passed = held.passed(queue)
        assert passed == len(held)
        if step == "add":
            if passed == len(queue):
                queue.append(delivery(offset := offset + 1))
            found = queue[passed]
            key = keys.setdefault(found.place[1], KEYS[number])
            held.add(found, key)
        elif step == "wait":
            held.waits_for(KEYS[number], client)
        elif step == "take":
            for key, found in list(held.next_of_each_member())[:1]:
                first = next(one for one in queue if keys.get(one.place[1]) == key)
                assert found is first
                queue.remove(found)
                held.remove(key)
        elif step == "drop" and queue:
            del queue[number % len(queue)]
        elif step == "put in front":
            queue.appendleft(delivery(offset := offset + 1))
            held.clear()
        before = list(queue)[: held.passed(queue)]
        assert {keys[one.place[1]] for one in before} == {key for key in KEYS if key in held}
