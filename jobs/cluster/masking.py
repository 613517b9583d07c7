"""Masks secrets in what is shown or passed on: which names have them, and a line without them."""

import re

MASKED = "********"
QUOTES = "\"'"

_SECRET = re.compile(r"(?i)password|passphrase|secret|token|key|jaas")
_REFERENCE = re.compile(
    r"(?i)(file|location|path|url|endpoint|keytab)$|spark\.kubernetes\.\w+\.(secrets|secretkeyref)\."
)
"""Suffixes of names that say where something is: a file, or a Secret as Spark mounts it into a pod."""
_IDENTITY = re.compile(r"(?i)access_key_id$|fs\.s3a\.(.+\.)?access\.key$")
"""Names of keys that are identifiers: the secret that belongs to them has another name."""
_INNER = re.compile(
    r"""
    (?P<name> "[^"]+" | '[^']+' | [\w.\-]+ )
    (?P<equals> \s*=\s* | (?<=["'])\s*:\s* )
    (?P<value> \"{3}[\s\S]*?\"{3} | '{3}[\s\S]*?'{3} | "(?:[^"\\]|\\.)*" | '[^']*' | [^\s,;}]+ )
    """,
    re.VERBOSE,
)
"""A name and its value inside a value: TOML's inline tables, a JVM's options, JAAS, JSON."""
_LOGIN = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+@")


def is_secret(name: str) -> bool:
    """Whether a setting of this name is a secret."""
    return may_be_secret(name) and not _IDENTITY.search(name)


def may_be_secret(name: str) -> bool:
    """The same, but also True for identifiers of keys, which are not shown either."""
    return bool(_SECRET.search(name)) and not _REFERENCE.search(name)


def masked(line: str) -> str:
    """The line, `NAME=VALUE` or another, without possible secrets: values of such names, also inside other values, and
    passwords in addresses."""
    name, equals, value = line.partition("=")
    if not equals:
        return line
    return f"{name}={MASKED if may_be_secret(name) else _without_secrets(value)}"


def _without_secrets(value: str) -> str:
    return _LOGIN.sub(rf"\1:{MASKED}@", _INNER.sub(_without_secret, value))


def _without_secret(found: "re.Match[str]") -> str:
    name, value = found["name"], found["value"]
    return (
        f"{name}{found['equals']}{MASKED if may_be_secret(name.strip(QUOTES)) else _INNER.sub(_without_secret, value)}"
    )
