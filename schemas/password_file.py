"""The password file: lines `user:$argon2id$…`, written by `waystation passwd`, read by the gateway (R11).

Empty lines and lines that begin with `#` are passed over. Passwords are hashed with Argon2id (RFC 9106), with the
parameters that OWASP gives for logins: 19 MiB, two passes, one lane. Each line carries its own, so other ones do too.
"""

import re
from typing import Final

from argon2 import PasswordHasher

from schemas.errors import SettingsError

USER_BYTES_MAX: Final = 255

_HASH = re.compile(r"\$argon2id\$v=\d+\$m=\d{1,8},t=\d{1,4},p=\d{1,3}\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{11,}")


def hasher() -> PasswordHasher:
    """What hashes new passwords."""
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def is_user_name(user: str) -> bool:
    """Whether a gateway takes `user` for a name: 1 to 255 bytes of UTF-8, all printable."""
    return user.isprintable() and 0 < len(user.encode()) <= USER_BYTES_MAX


def parse(text: str, source: str) -> dict[str, str]:
    """The hash of each user; `source` names the file in the SettingsError for a line that is not right."""
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, encoded = line.rstrip().partition(":")
        where = f"{source}, line {number}"
        if not is_user_name(user) or not _HASH.fullmatch(encoded):
            raise SettingsError(f"{where} is not `user:$argon2id$…`: write it with `waystation passwd FILE USER`")
        if user in users:
            raise SettingsError(f"{where}: the user {user!r} is there twice: remove one of the lines")
        users[user] = encoded
    return users


def with_user(text: str, user: str, encoded: str | None) -> str:
    """The file's text with the user's hash in it, or without the user if there is none; other lines stay."""
    lines = text.splitlines()
    kept = [line for line in lines if line.startswith("#") or line.partition(":")[0] != user]
    if encoded is not None:
        place = next((n for n, line in enumerate(lines) if line not in kept), len(kept))
        kept.insert(place, f"{user}:{encoded}")
    return "".join(f"{line}\n" for line in kept)
