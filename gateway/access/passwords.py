"""User names and passwords, verified with Argon2 on separate threads, so that the loop never waits for a hash (R11).

A verification takes tens of milliseconds, so the number waiting is limited and successful passwords are cached for a
while: a reconnect storm then costs one keyed hash per client. Unknown users cost as much as known ones.
"""

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gateway.access.methods import Identity
from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.watched import Watched, read_text
from mqtt.codes import ReasonCode
from schemas.access_settings import PasswordSettings
from schemas.password_file import Passwords, verify

WRONG = "the user name or password is wrong"


def read_passwords(path: str) -> Passwords:
    """Reads the password file. Raises SettingsError."""
    return Passwords.read(read_text(path, "gateway.authentication.password.file"), path)


class PasswordMethod:
    """`now` gives monotonic seconds."""

    name = "password"

    def __init__(
        self,
        passwords: Watched[Passwords],
        settings: PasswordSettings,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._passwords = passwords
        self._settings = settings
        self._remembered = _Remembered(settings, now)
        self._threads = ThreadPoolExecutor(settings.threads, "passwords")
        self._at_work = 0

    async def identify(self, credentials: Credentials) -> Identity | None:
        user, password = credentials.username, credentials.password
        if not user:
            return None
        if not password:
            raise NotAdmitted(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the client sent a user name without a password")
        passwords = self._passwords.current
        encoded = passwords.users.get(user)
        key = self._remembered.key(user, password, encoded or "")
        if encoded is not None and self._remembered.has(key):
            return Identity(user)
        if self._at_work >= self._settings.threads + self._settings.waiting:
            raise NotAdmitted(ReasonCode.SERVER_BUSY, "too many passwords are waiting to be verified")
        self._at_work += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._threads, verify, encoded or passwords.decoy, password)
        finally:
            self._at_work -= 1
        if encoded is None or not is_right:
            raise NotAdmitted(ReasonCode.BAD_USER_NAME_OR_PASSWORD, WRONG)
        self._remembered.add(key)
        return Identity(user)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Remembered:
    """Cache of correct passwords, as keyed hashes of user, password and the user's line in the file: a changed line
    invalidates them. The key is random and belongs to this process."""

    def __init__(self, settings: PasswordSettings, now: Callable[[], float]) -> None:
        self._kept_s = settings.cache_s
        self._most = settings.cache_entries if settings.cache_s else 0
        self._now = now
        self._secret = os.urandom(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def key(self, user: str, password: bytes, encoded: str) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (user.encode(), encoded.encode(), password):
            digest.update(len(part).to_bytes(4) + part)
        return digest.digest()

    def has(self, key: bytes) -> bool:
        until = self._until.get(key)
        if until is not None and until <= self._now():
            del self._until[key]
            return False
        return until is not None

    def add(self, key: bytes) -> None:
        if not self._most:
            return
        self._until[key] = self._now() + self._kept_s
        self._until.move_to_end(key)
        while len(self._until) > self._most:
            self._until.popitem(last=False)
