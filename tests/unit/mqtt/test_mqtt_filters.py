"""Covering and overlapping of topic filters, against all topics of a small alphabet (R11)."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.filters import covers, levels_of, overlaps
from mqtt.topics import is_topic_filter, matches
from tests.draw import examples

NAMES = ("a", "", "$s")
"""Levels of filters; topics have one more name, which no filter says, and one more level. The empty topic, which nobody
can publish to, counts: `/#` would match it."""

DEPTH = 3
TOPICS = ["/".join(t) for n in range(1, DEPTH + 2) for t in product((*NAMES, "other"), repeat=n)]


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from((*NAMES, "+", "+")), min_size=1, max_size=DEPTH))
    if draw(st.booleans()):
        levels[-1] = "#"
    text = "/".join(levels)
    return text if text else "a"


def denies(topic_filter: str, topic: str) -> bool:
    """As `matches`, but that wildcards match what begins with `$` too."""
    is_wild = topic_filter[:1] in ("+", "#")
    return matches(topic_filter, f"x{topic[1:]}" if is_wild and topic.startswith("$") else topic)


@settings(max_examples=examples(200), deadline=None)
@given(filters(), filters())
def test_covering_is_that_no_topic_matches_only_what_was_asked(allowed: str, asked: str) -> None:
    """R11: a subscription is allowed whole or not at all."""
    only_asked = [topic for topic in TOPICS if matches(asked, topic) and not matches(allowed, topic)]
    assert covers(levels_of(allowed), levels_of(asked)) == (not only_asked)


@settings(max_examples=examples(200), deadline=None)
@given(filters(), filters())
def test_overlapping_is_that_some_topic_matches_both(denied: str, asked: str) -> None:
    """R11: a filter any part of which is denied is refused."""
    both = [topic for topic in TOPICS if matches(asked, topic) and denies(denied, topic)]
    assert overlaps(levels_of(denied), levels_of(asked)) == bool(both)


@settings(max_examples=examples(200), deadline=None)
@given(filters(), st.sampled_from(TOPICS))
def test_a_topic_is_a_filter_that_matches_itself_alone(topic_filter: str, topic: str) -> None:
    """R11: PUBLISH is asked by the same functions."""
    assert is_topic_filter(topic_filter)
    assert covers(levels_of(topic_filter), levels_of(topic)) == matches(topic_filter, topic)
    assert overlaps(levels_of(topic_filter), levels_of(topic)) == denies(topic_filter, topic)
