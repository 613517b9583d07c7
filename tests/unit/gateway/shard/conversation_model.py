"""What must hold of conversations however it went (R6): a part of :mod:`tests.unit.gateway.shard.home_model`."""

from typing import TYPE_CHECKING

from mqtt.topics import matches

if TYPE_CHECKING:
    from tests.unit.gateway.shard.home_model import HomeModel


def check_conversations(model: "HomeModel", topic_filter: str) -> None:
    """At the end, for one group. Its members have no other subscriptions. Of messages that a sender has made twice
    either may have been the first."""
    of: dict[tuple[int, str], list[bytes]] = {}
    for sent in model.sent:
        if sent.conversation and matches(topic_filter, sent.topic) and sent.payload not in model.twice():
            of.setdefault((sent.sender, sent.conversation), []).append(sent.payload)
    for messages in of.values():
        _check_one(model, messages)


def _check_one(model: "HomeModel", messages: list[bytes]) -> None:
    """`messages` are those of one conversation in the order sent. Repetitions count as little as in R8."""
    stored = model.offsets()
    first = [(name, stored[p]) for name, p in dict.fromkeys(model.given) if p in messages]
    told = {(name, stored[p]) for name, p in model.told}
    for name in {name for name, _ in first}:
        own = [offset for of, offset in first if of == name]
        assert own == sorted(own), f"{name} got {own} of a conversation"
    if "conversations" in model.setup.shares:  # they are forgotten early
        return
    newest, member = -1, ""
    for name, offset in first:  # what is not the newest was another one's that came back late
        if offset > newest:
            assert not member or name == member or (name, offset) in told, f"{name} was not told at {offset}: {first}"
            newest, member = offset, name
    if model.is_calm and model.all_stay:
        assert len({name for name, _ in first}) <= 1, f"{first} went to several"
        assert not told, f"{told} were told"
