"""The subscription trie against the reference of the specification (MQTT 5.0, 4.7)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.trie import Search, SubscriptionTrie
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


overlapping = st.lists(st.sampled_from(["a", "+"]), min_size=1, max_size=30).map("/".join)


@given(st.lists(overlapping, max_size=60), st.integers(1, 32))
def test_a_search_visits_two_nodes_a_filter_at_most(wide: list[str], depth: int) -> None:
    """However many levels they have."""
    trie = SubscriptionTrie[str]()
    for topic_filter in wide:
        trie.add(topic_filter, "c", topic_filter)
    search = trie.start("/".join(["a"] * depth))
    assert search.run()
    assert search.visited <= 2 * len(set(wide)) + 1


@given(st.lists(filters, max_size=20), changes, topics, st.integers(1, 3))
def test_a_search_in_steps_finds_what_stays_once(
    held: list[str], changes: list[tuple[bool, str, str]], topic: str, most: int
) -> None:
    """What comes or goes between two steps is found once or not at all; what does not match never."""
    trie, there = SubscriptionTrie[tuple[str, str]](), set[tuple[str, str]]()
    for topic_filter in held:
        trie.add(topic_filter, "c", (topic_filter, "c"))
        there.add((topic_filter, "c"))
    stays, ever, search = set(there), set(there), trie.start(topic)
    todo = list(changes)
    while not search.run(most):
        if todo:
            is_added, topic_filter, key = todo.pop()
            if is_added:
                trie.add(topic_filter, key, (topic_filter, key))
                ever.add((topic_filter, key))
            else:
                trie.remove(topic_filter, key)
                stays.discard((topic_filter, key))
    assert len(search.found) == len(set(search.found))
    assert {(f, k) for f, k in stays if matches(f, topic)} <= set(search.found)
    assert set(search.found) <= {(f, k) for f, k in ever if matches(f, topic)}
    assert search.found == trie.search(topic) or changes


@given(changes, topics)
def test_what_is_begun_is_what_matches(changes: list[tuple[bool, str, str]], topic: str) -> None:
    """And is remembered only if it was finished."""
    trie = SubscriptionTrie[tuple[str, str]]()
    for is_added, topic_filter, key in changes:
        (trie.add(topic_filter, key, (topic_filter, key)) if is_added else trie.remove(topic_filter, key))
    for most in (1, 2, 1_000, 1):
        found = trie.begin(topic, most)
        if isinstance(found, Search):
            while not found.run(1):
                pass
            found = found.found
        assert sorted(found) == sorted(trie.search(topic))
