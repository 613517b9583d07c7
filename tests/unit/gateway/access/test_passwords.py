"""User names and passwords (R11): the file, verifying off the loop, what is remembered, and being busy."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from gateway.access import passwords
from gateway.access.methods import Identity
from gateway.access.passwords import PasswordMethod, read_passwords
from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.watched import Watched
from mqtt.codes import ReasonCode
from schemas.access_settings import PasswordSettings
from schemas.errors import SettingsError
from schemas.password_file import parse, with_user

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def hashed(password: str) -> str:
    return CHEAP.hash(password)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that were verified against, in order."""
    asked: list[str] = []
    verify = passwords.verify

    def noting(encoded: str, password: bytes) -> bool:
        asked.append(encoded)
        return verify(encoded, password)

    monkeypatch.setattr(passwords, "verify", noting)
    return asked


class Users:
    """A password file and the method that reads it. `now` is the clock."""

    def __init__(self, tmp_path: Path, users: dict[str, str], **changes: Any) -> None:
        self.path = tmp_path / "passwords"
        self.now = 0.0
        self.write(users)
        self.file = Watched([str(self.path)], lambda: read_passwords(str(self.path)))
        values = {"file": "", "threads": 1, "waiting": 2, "cache_s": 10.0, "cache_entries": 3}
        self.method = PasswordMethod(self.file, PasswordSettings(**{**values, **changes}), lambda: self.now)

    def write(self, users: dict[str, str]) -> None:
        self.path.write_text("# ours\n\n" + "".join(f"{user}:{hashed(word)}\n" for user, word in users.items()))

    async def identify(self, user: str | None, password: bytes | None) -> Identity | None:
        return await self.method.identify(Credentials("c", user, password, None, "peer", "mqtt"))

    async def refusal(self, user: str, password: bytes | None) -> ReasonCode:
        with pytest.raises(NotAdmitted) as raised:
            await self.identify(user, password)
        assert "secret" not in str(raised.value)
        return raised.value.reason


def scenario(tmp_path: Path, body: Callable[[Users], Any], **changes: Any) -> None:
    async def run() -> None:
        users = Users(tmp_path, {"alice": "secret", "bob": "other"}, **changes)
        try:
            await body(users)
        finally:
            users.method.close()

    asyncio.run(run())


def test_right_wrong_and_unknown(tmp_path: Path, verified: list[str]) -> None:
    """R11: 0x86 in the same words for both; an unknown user costs a verification too, of the same kind."""

    async def body(users: Users) -> None:
        assert await users.identify("alice", b"secret") == Identity("alice")
        wrong = ReasonCode.BAD_USER_NAME_OR_PASSWORD
        for user, password in (("alice", b"other"), ("nobody", b"secret"), ("alice", None), ("alice", b"")):
            assert await users.refusal(user, password) is wrong
        assert await users.identify(None, b"secret") is None
        assert await users.identify("", None) is None
        assert len(verified) == 3
        assert verified[2] == users.file.current.decoy
        assert verified[2].rpartition("$")[0].startswith("$argon2id$v=19$m=8,t=1,p=1$")

    scenario(tmp_path, body)


def test_what_was_right_is_remembered_for_a_while(tmp_path: Path, verified: list[str]) -> None:
    """R11: a reconnect storm costs no hashes; the wrong password, a changed line and time do."""

    async def body(users: Users) -> None:
        for _ in range(5):
            assert await users.identify("alice", b"secret")
        assert len(verified) == 1
        await users.refusal("alice", b"other")
        assert len(verified) == 2
        users.now = 10.0
        assert await users.identify("alice", b"secret")
        assert len(verified) == 3
        users.write({"alice": "changed!"})
        await users.file.refresh()
        await users.refusal("alice", b"secret")
        assert await users.identify("alice", b"changed!")

    scenario(tmp_path, body)


def test_the_memory_is_bounded_and_can_be_switched_off(tmp_path: Path, verified: list[str]) -> None:
    async def body(users: Users) -> None:
        users.write({str(n): "secret" for n in range(5)})
        await users.file.refresh()
        for _ in range(2):
            for n in (0, 1, 2, 3):
                await users.identify(str(n), b"secret")
        assert len(verified) == 8  # three are remembered, and the oldest always gone
        await users.identify("3", b"secret")
        assert len(verified) == 8

    scenario(tmp_path, body)

    async def forgetful(users: Users) -> None:
        verified.clear()
        await users.identify("alice", b"secret")
        await users.identify("alice", b"secret")
        assert len(verified) == 2

    scenario(tmp_path, forgetful, cache_s=0.0)


def test_too_many_at_a_time_are_told_to_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: 0x89, at once; those who wait are served, and the loop never waits."""

    async def body(users: Users) -> None:
        go_on = threading.Event()
        monkeypatch.setattr(passwords, "verify", lambda *_: go_on.wait(20))
        waiting = [asyncio.create_task(users.identify("alice", b"%d" % n)) for n in range(3)]
        await asyncio.sleep(0)
        assert await users.refusal("bob", b"other") is ReasonCode.SERVER_BUSY
        go_on.set()
        assert await asyncio.gather(*waiting) == [Identity("alice")] * 3
        assert await users.identify("bob", b"other") == Identity("bob")

    scenario(tmp_path, body)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("alice", "line 2"),
        ("alice:secret", "line 2"),
        (":" + hashed("x"), "line 2"),
        ("alice:$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHRzYWx0$aGFzaGhhc2hoYXNo", "line 2"),
        ("bob:" + hashed("x"), "'bob' is listed twice"),
    ],
    ids=["no hash", "no known hash", "no name", "another argon2", "twice"],
)
def test_a_line_that_is_not_right_is_named_without_showing_it(line: str, named: str) -> None:
    """R11: secrets are never in errors."""
    with pytest.raises(SettingsError) as raised:
        parse(f"bob:{hashed('secret')}\n{line}\n", "passwords")
    assert named in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "argon2id$v" not in str(raised.value)


def test_hashes_that_cannot_be_computed_are_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("alice:$argon2id$v=19$m=1,t=1,p=1$AAAAAAAAAAAA$AAAAAAAAAAAAAAAA\n")
    with pytest.raises(SettingsError, match="passwords: the parameters of the first hash"):
        read_passwords(str(path))


@given(st.dictionaries(st.text(alphabet="abc# é", min_size=1, max_size=4), st.just("x"), max_size=5), st.data())
def test_a_user_is_changed_and_removed_without_touching_others(users: dict[str, str], data: st.DataObject) -> None:
    text = "# first\n"
    names = [name for name in users if not name.startswith("#")]
    for name in names:
        text = with_user(text, name, _SOME)
    assert list(parse(text, "f")) == names
    if names:
        chosen = data.draw(st.sampled_from(names))
        changed = with_user(text, chosen, _OTHER)
        assert parse(changed, "f") == {**dict.fromkeys(names, _SOME), chosen: _OTHER}
        assert changed.count("\n") == text.count("\n")
        assert list(parse(with_user(text, chosen, None), "f")) == [name for name in names if name != chosen]


_SOME, _OTHER = hashed("some"), hashed("other")
