"""The file of access rules, and what it says for one client (R11)."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.acl import Acl, parse
from gateway.access.authorizer import REFUSED, Authorizer
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from mqtt.topics import is_topic_name
from schemas.errors import SettingsError
from tests.draw import examples

RULES = """
[groups]
sensors = ["s1", "s2"]

[[rules]]
publish.allow = ["devices/%c/#", "public"]
subscribe.allow = ["devices/%c/commands/+", "@%c", "public/#"]
subscribe.deny = ["public/secret/#"]

[[rules]]
users = ["alice"]
groups = ["sensors"]
publish.allow = ["users/%u/+", "devices/#"]
publish.deny = ["devices/+/firmware"]
"""


def acl(text: str = RULES, *, default: bool = False) -> Acl:
    return parse(text, "acl.toml", default=default)


def may_publish(rules: Acl, topic: str, user: str = "", client: str = "c") -> bool:
    return rules.publishing(user, client).allows(topic)


def may_subscribe(rules: Acl, topic_filter: str, user: str = "", client: str = "c") -> bool:
    return rules.subscribing(user, client).allows(topic_filter)


@pytest.mark.parametrize(
    ("user", "topic", "expected"),
    [
        ("", "devices/c/x/y", True),
        ("", "devices/d/x", False),
        ("", "public", True),
        ("", "public/x", False),
        ("", "users//x", False),
        ("bob", "users/bob/x", False),
        ("alice", "users/alice/x", True),
        ("alice", "users/bob/x", False),
        ("s2", "users/s2/x", True),
        ("alice", "devices/d/x", True),
        ("alice", "devices/d/firmware", False),
        ("alice", "devices/c/firmware", False),
    ],
)
def test_rules_for_everyone_users_and_groups_add_up_and_deny_goes_first(user: str, topic: str, expected: bool) -> None:
    """R11."""
    assert may_publish(acl(), topic, user) == expected


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("devices/c/commands/+", True),
        ("devices/c/commands/go", True),
        ("devices/c/commands/#", False),
        ("devices/+/commands/+", False),
        ("@c", True),
        ("@d", False),
        ("public/news", True),
        ("public/+", False),  # public/secret is among them
        ("public/#", False),
        ("public/secret", False),
        ("#", False),
    ],
)
def test_a_filter_is_allowed_if_it_is_covered_and_no_part_of_it_denied(topic_filter: str, expected: bool) -> None:
    """R11."""
    assert may_subscribe(acl(), topic_filter) == expected


def test_what_no_rule_speaks_of_is_as_configured() -> None:
    """R11: with `default = "allow"` only what is denied is refused."""
    rules = acl('[[rules]]\npublish.deny = ["a/#"]\n', default=True)
    assert may_publish(rules, "b")
    assert not may_publish(rules, "a")
    assert may_subscribe(rules, "#")
    assert not may_publish(acl(""), "b")


def test_denying_everything_denies_system_topics_too() -> None:
    rules = acl('[[rules]]\npublish.deny = ["#"]\nsubscribe.allow = ["#"]\n', default=True)
    assert not may_publish(rules, "$SYS/x")
    assert not may_subscribe(acl('[[rules]]\nsubscribe.allow = ["#"]\n'), "$SYS/#")


NASTY = st.one_of(
    st.sampled_from(["+", "#", "a/b", "/", "", "@bob", "$SYS", "%c", "%u", "a+", "#/", "bob/#"]),
    st.text(alphabet="ab+#/@$%cu", max_size=4),
)
PATTERNS = ["%c", "%u", "@%c", "%c/#", "a/%c", "a/%u/b", "a/%c/+", "x%c/y", "%u/%c/#", "a/%u-%c"]


def filled(pattern: str, user: str, client: str) -> str:
    """The pattern with the names as they are."""
    return "".join({"%c": client, "%u": user}.get(part, part) for part in re.split("(%[cu])", pattern))


@settings(max_examples=examples(300), deadline=None)
@given(NASTY, NASTY, st.sampled_from(PATTERNS), st.text(alphabet="ab+/@$%cux", min_size=1, max_size=6))
def test_a_name_never_widens_a_filter(user: str, client: str, pattern: str, topic: str) -> None:
    """R11: whatever names a client gives itself, what it may do has them on the very levels where the rule has them."""
    if not is_topic_name(topic) or not may_publish(
        acl(f'[[rules]]\npublish.allow = ["{pattern}"]\n'), topic, user, client
    ):
        return
    said, levels = pattern.split("/"), topic.split("/")
    assert [filled(one, user, client) for one in said if "%" in one] == [
        level for one, level in zip(said, levels, strict=False) if "%" in one
    ]
    assert pattern.startswith("@") or topic[0] not in "@$"


@settings(max_examples=examples(300), deadline=None)
@given(NASTY, NASTY, st.sampled_from(PATTERNS))
def test_a_name_gets_out_of_no_rule_that_denies(user: str, client: str, pattern: str) -> None:
    """R11: the topic that bears the names is denied, whatever they are."""
    rules = acl(f'[[rules]]\npublish.deny = ["{pattern}"]\n', default=True)
    topic = filled(pattern, user, client).replace("+", "a").replace("#", "a")
    assert not is_topic_name(topic) or not may_publish(rules, topic, user, client)


@pytest.mark.parametrize("client", ["+", "#", "a/b", "@bob", "$x"])
def test_a_rule_that_denies_denies_more_to_a_name_that_could_change_it(client: str) -> None:
    """R11: such a name gets out of no rule."""
    rules = acl('[[rules]]\npublish.deny = ["private/%c/x"]\n', default=True)
    assert not may_publish(rules, "private/other/x", client=client)
    assert may_publish(rules, "elsewhere", client=client)
    assert may_publish(rules, "private/other/x", client="plain")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[rules]", ["acl.toml", "TOML"]),
        ("[[rules]]\npublish.alow = []", ["acl.toml", "alow"]),
        ("[[rules]]\ngroups = ['x']", ["acl.toml", "rule 1", "'x'", "[groups]"]),
        ("[[rules]]\n[[rules]]\npublish.allow = ['a/#/b']", ["acl.toml", "rule 2", "'a/#/b'"]),
        ("[[rules]]\nsubscribe.allow = ['$share/g/a']", ["acl.toml", "rule 1", "$share/g/a"]),
        ("[[rules]]\nusers = 'alice'", ["acl.toml", "expected a list"]),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(text: str, named: list[str]) -> None:
    """R11."""
    with pytest.raises(SettingsError) as raised:
        acl(text)
    for word in named:
        assert word in str(raised.value)


def test_a_client_keeps_its_answers_until_the_rules_change() -> None:
    """R11: refusals are counted, a change counts at once, and what is remembered is bounded."""
    counts: Counter[str] = Counter()
    authorizer = Authorizer(acl(), counts)
    changes: list[None] = []
    authorizer.changed = lambda: changes.append(None)
    rules = authorizer.rules("alice", "c", 7.0)
    assert (rules.user, rules.open, rules.until) == ("alice", False, 7.0)
    assert rules.publish(Publish("devices/1", b"")).reason is ReasonCode.SUCCESS
    for _ in range(3):
        assert rules.publish(Publish("else", b"")) is REFUSED
    assert rules.subscribe("$share/g/public/news") is ReasonCode.SUCCESS
    assert rules.subscribe("$share/g/#") is ReasonCode.NOT_AUTHORIZED
    assert rules.subscribe("$share/#") is ReasonCode.NOT_AUTHORIZED
    assert counts == {"publish_not_authorized": 3}
    for number in range(1000):
        rules.publish(Publish(f"devices/{number}", b""))
    assert len(rules._verdicts) <= 256
    authorizer.replace(acl('[[rules]]\npublish.allow = ["else"]\nsubscribe.allow = ["#"]\n'))
    assert changes == [None]
    assert rules.publish(Publish("else", b"")).reason is ReasonCode.SUCCESS
    assert rules.publish(Publish("devices/1", b"")) is REFUSED
    assert rules.subscribe("$share/g/#") is ReasonCode.SUCCESS


def test_rules_of_clients_that_have_gone_are_forgotten() -> None:
    authorizer = Authorizer(acl(), Counter())
    for number in range(10):
        authorizer.rules("", str(number), 0.0)
    assert len(authorizer._given) == 0
