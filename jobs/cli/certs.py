"""`certs`: certificates to try TLS with."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.errors import JobError

HOSTS = ("localhost", "127.0.0.1", "::1")


def register(app: typer.Typer) -> None:
    app.command()(certs)


def certs(
    directory: Annotated[Path, typer.Argument(help="Where the files go; made if new.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help=f"Name or address of the server; several times. Default: {', '.join(HOSTS)}."),
    ] = None,
    clients: Annotated[
        list[str] | None, typer.Option("--client", help="Also a certificate for this client; several times.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=825, help="How long they are valid.")] = 30,
) -> None:
    """Create certificates to try TLS with: an authority of your own, one for the server, and for clients.

    For tests only: the authority's key lies in the same directory. An existing authority is used again, so that clients
    can be added later; other existing files are left alone.

    Examples:

        waystation certs tls
        waystation certs tls --host gateway.example --client device-7
    """
    from jobs.runtime.certificates import make  # it takes a moment to load

    try:
        make(directory, hosts or HOSTS, clients or [], days, typer.echo)
    except (OSError, ValueError) as error:
        raise JobError(f"the certificates in {directory} cannot be made: {error}") from error
    place = directory.absolute()
    typer.echo(f'\n[gateway.tls]\ncertificate = "{place}/server.crt"\nkey = "{place}/server.key"\nmqtts_port = 8883')
    if clients:
        typer.echo(f'client_ca = "{place}/ca.crt"\nclient_certificates = "optional"')
