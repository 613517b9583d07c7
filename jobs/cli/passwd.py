"""`passwd`: users of the gateway's password file (R11)."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from jobs.errors import JobError
from schemas.errors import why_unreadable
from schemas.password_file import hasher, is_user_name, parse, with_user


def register(app: typer.Typer) -> None:
    app.command()(passwd)


def passwd(
    file: Annotated[
        Path, typer.Argument(help="Password file (gateway.authentication.password.file). Created if missing.")
    ],
    user: Annotated[str, typer.Argument(help="User name.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
) -> None:
    """Add a user to a password file, or change a user's password. The password is prompted for, or read from the first
    line of standard input.

    Running gateways apply the change within about a second.

    Examples:

        waystation passwd passwords alice
        waystation passwd passwords sensor-7 < secret
        waystation passwd passwords alice --delete
    """
    if not is_user_name(user) or ":" in user or user.startswith("#") or user != user.strip():
        raise JobError(
            f"{user!r} is not a valid user name: use up to 255 bytes of printable text without `:`, without a leading "
            "`#`, and without spaces at either end"
        )
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        users = parse(text, str(file))
        if delete and user not in users:
            raise JobError(f"{file} has no user {user!r}: check the name")
        _write(file, with_user(text, user, None if delete else hasher().hash(_password())))
        done = "removed from" if delete else "changed in" if user in users else "added to"
        typer.echo(f"user {user} {done} {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"cannot change {file}: {why_unreadable(error)}") from error


def _password() -> str:
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise JobError("the password is empty: enter a password, or use --delete to remove the user")
    return password


def _write(file: Path, text: str) -> None:
    """Replaces the file atomically. A new file is readable by its owner only; an existing one keeps mode and owner."""
    target = file.resolve()  # a link stays a link
    existing = target.stat() if target.exists() else None
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        if existing is not None:
            os.chmod(name, existing.st_mode & 0o7777)
            if (existing.st_uid, existing.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(name, existing.st_uid, existing.st_gid)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
