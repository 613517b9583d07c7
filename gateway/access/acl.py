"""The file of access rules (`gateway.authorization.file`), and the permissions it gives one client (R11). Pure.

    [groups]
    sensors = ["s1", "s2"]

    [[rules]]                        # for everyone
    publish.allow = ["devices/%c/#"]
    subscribe.allow = ["devices/%c/commands/+", "@%c"]

    [[rules]]
    users = ["alice"]
    groups = ["sensors"]             # alice, and every member of the group
    publish.deny = ["devices/+/firmware"]

`%c` is the client id and `%u` the user. All rules for a client apply together; deny overrides allow.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mqtt.filters import Levels, covers, levels_of, overlaps
from mqtt.topics import SHARED_PREFIX, is_topic_filter
from schemas.errors import SettingsError
from schemas.sections import Section
from schemas.validation import convert, settings_error

_PLACEHOLDER = re.compile("%[cu]")


class Filters(Section, frozen=True, kw_only=True):
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Rule(Section, frozen=True, kw_only=True):
    """Applies to `users` and to members of `groups`; to everyone if it names neither."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    publish: Filters = Filters()
    subscribe: Filters = Filters()

    def concerns(self, user: str, groups: frozenset[str]) -> bool:
        return not (self.users or self.groups) or user in self.users or not groups.isdisjoint(self.groups)


class AclFile(Section, frozen=True, kw_only=True):
    groups: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    rules: tuple[Rule, ...] = ()


class Permission(NamedTuple):
    """What one client may publish, or subscribe to; `default` applies if no filter matches."""

    allow: tuple[Levels, ...]
    deny: tuple[Levels, ...]
    default: bool

    def allows(self, asked: str) -> bool:
        """Whether the topic or the whole filter is allowed: covered by an allowed filter, and no part of it denied."""
        levels = levels_of(asked)
        if any(overlaps(denied, levels) for denied in self.deny):
            return False
        return self.default or any(covers(allowed, levels) for allowed in self.allow)


class Acl:
    """All rules of a file; `default` applies if none matches."""

    def __init__(self, file: AclFile, *, default: bool) -> None:
        self._rules = file.rules
        self._default = default
        members: dict[str, set[str]] = {}
        for group, users in file.groups.items():
            for user in users:
                members.setdefault(user, set()).add(group)
        self._groups = {user: frozenset(groups) for user, groups in members.items()}

    def publishing(self, user: str, client: str) -> Permission:
        return self._permission([rule.publish for rule in self._of(user)], user, client)

    def subscribing(self, user: str, client: str) -> Permission:
        return self._permission([rule.subscribe for rule in self._of(user)], user, client)

    def _of(self, user: str) -> list[Rule]:
        groups = self._groups.get(user, frozenset())
        return [rule for rule in self._rules if rule.concerns(user, groups)]

    def _permission(self, filters: Sequence[Filters], user: str, client: str) -> Permission:
        values = {"%c": client, "%u": user}
        allow = (_allowed(text, values) for f in filters for text in f.allow)
        deny = (_denied(text, values) for f in filters for text in f.deny)
        return Permission(tuple(levels for levels in allow if levels), tuple(deny), self._default)


def parse(text: str, source: str, *, default: bool) -> Acl:
    """Parses the rules in a file; `source` names it in the SettingsError for a mistake."""
    try:
        file = convert(tomllib.loads(text), AclFile)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source} is not valid TOML: {error}") from error
    if isinstance(file, list):
        raise settings_error([f"{source}: {problem.text}" for problem in file])
    for number, rule in enumerate(file.rules, 1):
        unknown = set(rule.groups) - set(file.groups)
        if unknown:
            raise SettingsError(
                f"{source}, rule {number} names the unknown group {min(unknown)!r}: list it in [groups]"
            )
        for text in (*rule.publish.allow, *rule.publish.deny, *rule.subscribe.allow, *rule.subscribe.deny):
            if text.startswith(SHARED_PREFIX) or not is_topic_filter(_PLACEHOLDER.sub("x", text)):
                raise SettingsError(
                    f"{source}, rule {number}: {text!r} is not a topic filter: `+` and `#` must be alone on a level, "
                    f"`#` on the last; for a shared subscription write only its filter"
                )
    return Acl(file, default=default)


def _is_plain(value: str) -> bool:
    """Whether a name in a filter matches only itself: no wildcard, no level separator, no inbox or `$` topic."""
    return bool(value) and value[0] not in "$@" and not any(mark in value for mark in "+#/\0")


def _fill(text: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[0]], text)


def _is_usable(text: str, values: dict[str, str]) -> bool:
    return all(_is_plain(values[name]) for name in _PLACEHOLDER.findall(text))


def _allowed(text: str, values: dict[str, str]) -> Levels | None:
    """The filter for this client; None, which allows nothing, if a name in it could widen the filter."""
    return levels_of(_fill(text, values)) if _is_usable(text, values) else None


def _denied(text: str, values: dict[str, str]) -> Levels:
    """The filter for this client; cut before a name that could change it, so that it denies more, never less."""
    kept: list[str] = []
    for level in text.split("/"):
        if not _is_usable(level, values):
            return (*kept, "#")
        kept.append(_fill(level, values))
    return levels_of("/".join(kept))
