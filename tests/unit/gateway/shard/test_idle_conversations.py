"""Which conversation of a share group is forgotten first (R6)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.conversations import Conversation
from gateway.shard.held_messages import ConversationKey
from gateway.shard.idle_conversations import IdleConversations
from schemas.envelope import Incarnation

KEYS = st.builds(ConversationKey, st.sampled_from("xyz"), st.sampled_from("abcd"))


@given(st.lists(st.tuples(st.booleans(), KEYS)))
def test_the_sender_with_most_loses_its_oldest(steps: list[tuple[bool, ConversationKey]]) -> None:
    idle, model = IdleConversations(), dict[ConversationKey, Conversation]()
    for is_added, key in steps:
        model.pop(key, None)
        if is_added:
            model[key] = Conversation(key, "m", Incarnation(1, 1), 0)
            idle.add(model[key])
        else:
            idle.discard(key)
        assert len(idle) == len(model)
        assert all(known in idle for known in model)
        assert idle.oldest is next(iter(model.values()), None)
        if model:
            of = Counter(known.sender for known in model)
            found = idle.first_to_go
            assert of[found.sender] == max(of.values())
            assert found == next(known for known in model if known.sender == found.sender)


def test_nothing_is_kept_of_those_that_are_gone() -> None:
    idle, key = IdleConversations(), ConversationKey("x", "a")
    idle.discard(key)
    idle.add(Conversation(key, "m", Incarnation(1, 1), 0))
    idle.discard(key)
    assert key not in idle
    assert not any(vars(idle).values())
