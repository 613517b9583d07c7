"""Topic names, filters and matching (MQTT 5.0, 4.7 and 4.8.2); the examples of the specification first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.topics import is_topic_filter, is_topic_name, matches, split_shared
from tests.draw import examples


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("#", "a/b", True),
        ("#", "/", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis", True),
        ("+/b/#", "a", False),
        ("#", "$SYS/broker", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+", "a/$b", True),
        ("ACCOUNTS", "Accounts", False),
        ("a", "a/", False),
        ("a/", "a", False),
    ],
)
def test_matches(topic_filter: str, topic: str, expected: bool) -> None:
    """4.7.1 to 4.7.3."""
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize("topic_filter", ["#", "+", "/", "a", "a/#", "+/+", "/+", "+/tennis/#", "a//b", "$SYS/#", " "])
def test_valid_filters(topic_filter: str) -> None:
    """4.7.1."""
    assert is_topic_filter(topic_filter)


@pytest.mark.parametrize("topic_filter", ["", "sport#", "a/#/b", "#/", "sport+", "a/+b/c", "##", "++", "a\0", "\ud800"])
def test_invalid_filters(topic_filter: str) -> None:
    """4.7.1, 4.7.3."""
    assert not is_topic_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("a", True), ("/", True), ("a b/ü", True), ("", False), ("a/#", False), ("+", False), ("a\0", False)],
)
def test_topic_names(topic: str, expected: bool) -> None:
    """4.7.1, 4.7.3."""
    assert is_topic_name(topic) is expected
    assert not is_topic_name("é" * 32_768)  # 65,536 bytes
    assert is_topic_name("é" * 32_767)


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("$share/group/a/b", ("group", "a/b")),
        ("$share/group/#", ("group", "#")),
        ("$share/group//a", ("group", "/a")),
        ("$share/group/", None),
        ("$share/group", None),
        ("$share//a", None),
        ("$share/a+/b", None),
        ("$share/#/b", None),
        ("$share/g/a#", None),
        ("$shared/g/a", None),
        ("a/b", None),
    ],
)
def test_split_shared(topic_filter: str, expected: tuple[str, str] | None) -> None:
    """4.8.2."""
    assert split_shared(topic_filter) == expected


levels = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4)


@settings(max_examples=examples(200), deadline=None, database=None)
@given(levels, st.data())
def test_a_filter_made_from_a_topic_matches_it(names: list[str], data: st.DataObject) -> None:
    """Levels replaced by `+`, a tail replaced by `#`: still a match, unless a wildcard leads before `$`."""
    topic = "/".join(names)
    if not topic:
        return
    made = [data.draw(st.sampled_from([name, "+"])) for name in names]
    keep = data.draw(st.integers(0, len(names)))
    topic_filter = "/".join(made) if keep == len(names) else "/".join([*made[:keep], "#"])
    assert is_topic_filter(topic_filter)
    leads = topic_filter[0] in "#+" if topic_filter else False
    assert matches(topic_filter, topic) is not (leads and topic.startswith("$"))
