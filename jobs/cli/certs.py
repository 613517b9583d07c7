"""`certs`: certificates to try TLS with."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.errors import JobError

HOSTS = ("localhost", "127.0.0.1", "::1")


def register(app: typer.Typer) -> None:
    app.command()(certs)


def certs(
    directory: Annotated[Path, typer.Argument(help="Directory for the files. Created if missing.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help=f"Name or address of the server. May be repeated. Default: {', '.join(HOSTS)}."),
    ] = None,
    clients: Annotated[
        list[str] | None, typer.Option("--client", help="Also create a certificate for this client. May be repeated.")
    ] = None,
    gateways: Annotated[
        list[str] | None,
        typer.Option("--gateway", help="Also create a certificate for this member of a cluster. May be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=825, help="Validity of the certificates in days.")] = 30,
) -> None:
    """Create test certificates for TLS: a certificate authority, and certificates for the server and for clients.

    Use them for tests only: the authority's private key is in the same directory. An existing authority is reused, so
    you can add clients later. Other existing files are not changed.

    Examples:

        waystation certs tls
        waystation certs tls --host gateway.example --client device-7
    """
    from jobs.runtime.certificates import make  # it takes a moment to load

    try:
        make(directory, hosts or HOSTS, clients or [], days, typer.echo, gateways or [])
    except (OSError, ValueError) as error:
        raise JobError(f"cannot create certificates in {directory}: {error}") from error
    place = directory.absolute()
    typer.echo(f'\n[gateway.tls]\ncertificate = "{place}/server.crt"\nkey = "{place}/server.key"\nmqtts_port = 8883')
    if clients:
        typer.echo(f'client_ca = "{place}/ca.crt"\nclient_certificates = "optional"')
