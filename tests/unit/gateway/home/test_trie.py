"""The subscription trie against the reference of the specification (MQTT 5.0, 4.7)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.home.trie import SubscriptionTrie
from mqtt.topics import is_topic_filter, matches
from schemas.identity import CATCH_ALL, ROUTE_DEPTH, candidate_keys, route_key

levels = st.sampled_from(["", "a", "b", "$s", "@c"])
topics = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)
filters = st.tuples(
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=4), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]])).filter(is_topic_filter) | st.just("#")
changes = st.lists(st.tuples(st.booleans(), filters, st.sampled_from("xyz")), max_size=30)


@given(changes, st.lists(topics, max_size=8))
def test_it_matches_as_the_reference_does(changes: list[tuple[bool, str, str]], asked: list[str]) -> None:
    trie, held = SubscriptionTrie[tuple[str, str]](), set[tuple[str, str]]()
    for is_added, topic_filter, key in changes:
        if is_added:
            trie.add(topic_filter, key, (topic_filter, key))
            held.add((topic_filter, key))
        else:
            trie.remove(topic_filter, key)
            held.discard((topic_filter, key))
        for topic in asked:
            found = trie.match(topic)
            assert len(found) == len(set(found))
            assert set(found) == {(f, k) for f, k in held if matches(f, topic)}


@given(filters, topics, st.integers(1, 4))
def test_a_topic_looks_up_the_route_key_of_each_filter_that_matches(topic_filter: str, topic: str, depth: int) -> None:
    """R2: the coarse route keys never miss a subscription."""
    keys = candidate_keys(topic, depth)
    if matches(topic_filter, topic):
        assert route_key(topic_filter, depth) in keys
    assert keys[-1] == CATCH_ALL
    assert len(keys) == len(set(keys)) <= depth + 1


def test_route_keys_by_example() -> None:
    """R2: as the architecture lists them."""
    assert ROUTE_DEPTH == 2
    examples = {"a/b/#": "a/b", "a/b/c": "a/b", "a/+/c": "a", "a/#": "a", "+/b": "#", "#": "#", "a": "a", "/x": "/x"}
    assert {topic_filter: route_key(topic_filter) for topic_filter in examples} == examples
    assert candidate_keys("a/b/c") == ["a/b", "a", "#"]
    assert candidate_keys("a") == ["a", "#"]
