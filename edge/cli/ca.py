"""`waystation ca …`: the authority of a mesh, which issues, revokes and gives tokens (M5, M17)."""

import re
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from schemas.visible import visible

if TYPE_CHECKING:
    from bundles.receipt import Role
    from edge.enrol.authority_files import AuthorityFiles

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The authority's directory.")]
ClientId = Annotated[str, typer.Argument(help="The device's name on the platform.")]
RoleOption = Annotated[
    list[str] | None,
    typer.Option("--role", help="exit-agent: it may confirm deliveries to a mail server. May be repeated."),
]
_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_ROLES: Final = ("exit-agent",)


def commands() -> typer.Typer:
    """The group `ca`."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback()(ca)
    for command in (init, token, issue, gateway, revoke):
        app.command()(command)
    app.command("list")(list_)
    return app


def ca() -> None:
    """The authority of a mesh: it issues certificates to devices and gateways, and revokes them. Its directory has a
    key that can make anybody a member: keep it safe.

        waystation ca init authority
        waystation ca gateway authority platform gateway-identity
        waystation ca token authority van-7
        waystation ca revoke authority van-7
    """


def init(
    directory: Directory,
    name: Annotated[str, typer.Option(help="In its certificate, for people.")] = "waystation mesh",
) -> None:
    """Make an authority: key, certificate, and a revocation list without names. It lives 20 years."""
    from edge.enrol.authority_files import init as make

    made = make(directory, name, time.time())
    typer.echo(f"made the authority in {directory}, key {_fingerprint(made.key.public_bytes_raw())}: back it up, and")
    typer.echo("keep authority-key.pem secret")


def token(
    directory: Directory,
    client_id: ClientId,
    valid: Annotated[str, typer.Option(help="How long it can be used: 30m, 1h or 2d.")] = "1h",
    role: RoleOption = None,
) -> None:
    """Print a token with which a device gets its certificate from a gateway: `waystation agent enrol`. Whoever has it
    can do so until it ends."""
    typer.echo(_authority(directory).token(client_id, _roles(role), _seconds(valid)))


def issue(
    directory: Directory,
    client_id: ClientId,
    out: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Where the identity's files go.")],
    valid: Annotated[str, typer.Option(help="How long the certificate lives: such as 365d.")] = "365d",
    role: RoleOption = None,
) -> None:
    """Issue an identity as files, for a device that cannot ask a gateway. Move them to the device, as
    `identity` in its agent's store directory."""
    made = _authority(directory).issue(client_id, _roles(role), out, _seconds(valid))
    typer.echo(f"wrote the identity of {visible(made.name)} to {out}, valid until {_shown(made.not_after_s)}")


def gateway(
    directory: Directory,
    name: Annotated[str, typer.Argument(help="The platform's name on the mesh; all gateways have one identity.")],
    out: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Where the identity's files go.")],
    valid: Annotated[str, typer.Option(help="How long the certificate lives: such as 365d.")] = "365d",
) -> None:
    """Issue the identity of the platform, for its gateways: with it they sign receipts and open payloads. Its name must
    not begin with `http`."""
    from bundles.receipt import Role
    from schemas.mesh_api import CALLERS

    if name.startswith(CALLERS):
        raise typer.BadParameter(
            f"{visible(name)!r} begins with {CALLERS!r}, as names of agents over HTTP do: choose another name"
        )
    made = _authority(directory).issue(name, {Role.GATEWAY}, out, _seconds(valid))
    typer.echo(f"wrote the identity of {visible(made.name)} to {out}, valid until {_shown(made.not_after_s)}")


def revoke(
    directory: Directory,
    client_ids: Annotated[list[str], typer.Argument(help="The devices' names.")],
) -> None:
    """Revoke all certificates and tokens that these devices have. They can be enrolled again, with a new token."""
    made = _authority(directory).revoke(client_ids)
    typer.echo(f"revocation list {made.number} has {_names(made.before_s)}; gateways and devices pass it on")


def list_(directory: Directory) -> None:
    """Show the authority, what was issued here, and what is revoked. Gateways log the certificates that they issue."""
    found = _authority(directory)
    until = found.authority.certificate.not_valid_after_utc
    typer.echo(f"authority   key {_fingerprint(found.authority.key.public_bytes_raw())}, valid until {until:%Y-%m-%d}")
    for one in found.issued():
        roles = f", {', '.join(one['roles'])}" if one["roles"] else ""
        times = f"made {_shown(one['at_s'])}, until {_shown(one['until_s'])}"
        typer.echo(f"{one['what']:<11} {visible(one['name'])}{roles}, {times}")
    revocations = found.revocations()
    for name, before_s in sorted(revocations.before_s.items()):
        typer.echo(f"revoked     {visible(name)}, what was issued before {_shown(before_s)}")
    typer.echo(f"list        number {revocations.number}, {_names(revocations.before_s)}")


def _names(found: Collection[str]) -> str:
    return f"{len(found)} name{'' if len(found) == 1 else 's'}"


def _authority(directory: Path) -> "AuthorityFiles":
    from edge.enrol.authority_files import AuthorityFiles

    return AuthorityFiles(directory, time.time)


def _roles(wanted: list[str] | None) -> "set[Role]":
    from bundles.receipt import Role

    for one in wanted or []:
        if one not in _ROLES:
            raise typer.BadParameter(f"{visible(one)!r} is no role: allowed is {', '.join(_ROLES)}")
    return {Role.RECIPIENT, *({Role.EXIT_AGENT} if wanted else ())}


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text)
    if found is None:
        raise typer.BadParameter(f"{visible(text)!r} is no duration: write 30m, 1h or 2d")
    return int(found[1]) * _UNITS[found[2]]


def _shown(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _fingerprint(key: bytes) -> str:
    return key.hex()[:16]
