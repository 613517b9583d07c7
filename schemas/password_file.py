"""The password file: lines `user:$argon2id$…`, written by `waystation passwd`, read by the gateway (R11).

Empty lines and lines that begin with `#` are ignored. Passwords are hashed with Argon2id (RFC 9106), with the
parameters that OWASP recommends for logins: 19 MiB, two passes, one lane. Each line has its own parameters, so others
work too.
"""

import os
import re
from typing import Final, NamedTuple

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import HashingError, InvalidHashError, VerificationError

from schemas.errors import SettingsError

USER_BYTES_MAX: Final = 255

_HASH = re.compile(r"\$argon2id\$v=\d+\$m=\d{1,8},t=\d{1,4},p=\d{1,3}\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{11,}")


def hasher() -> PasswordHasher:
    """The hasher for new passwords."""
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


class Passwords(NamedTuple):
    """Hashes by user; `decoy` is a hash of no real password, with the same parameters as the users'."""

    users: dict[str, str]
    decoy: str

    @classmethod
    def read(cls, text: str, source: str) -> "Passwords":
        """The content of a password file, which `source` names. Raises SettingsError."""
        users = parse(text, source)
        like = next(iter(users.values()), None)
        try:
            maker = hasher() if like is None else PasswordHasher.from_parameters(extract_parameters(like))
            return cls(users, maker.hash(os.urandom(16)))
        except (HashingError, InvalidHashError) as error:
            raise SettingsError(f"{source}: the parameters of the first hash are not supported: {error}") from error


def verify(encoded: str, password: bytes) -> bool:
    """Whether it is the password of this hash; takes tens of milliseconds, or more if the parameters ask for it."""
    try:
        return PasswordHasher().verify(encoded, password)
    except VerificationError:  # wrong password, or the line holds no valid hash
        return False


def is_user_name(user: str) -> bool:
    """Whether a gateway accepts `user` as a name: 1 to 255 bytes of UTF-8, all printable."""
    return user.isprintable() and 0 < len(user.encode()) <= USER_BYTES_MAX


def parse(text: str, source: str) -> dict[str, str]:
    """The hash of each user. Raises SettingsError for a malformed line; `source` names the file in it."""
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, encoded = line.rstrip().partition(":")
        where = f"{source}, line {number}"
        if not is_user_name(user) or not _HASH.fullmatch(encoded):
            raise SettingsError(f"{where} is not `user:$argon2id$…`: write it with `waystation passwd FILE USER`")
        if user in users:
            raise SettingsError(f"{where}: the user {user!r} is listed twice: remove one of the lines")
        users[user] = encoded
    return users


def with_user(text: str, user: str, encoded: str | None) -> str:
    """The file's text with the user's hash set, or, if `encoded` is None, without the user; other lines stay."""
    lines = text.splitlines()
    kept = [line for line in lines if line.startswith("#") or line.partition(":")[0] != user]
    if encoded is not None:
        place = next((n for n, line in enumerate(lines) if line not in kept), len(kept))
        kept.insert(place, f"{user}:{encoded}")
    return "".join(f"{line}\n" for line in kept)
