"""The gateways that a command asks over the admin API: those named, or else those of the running stack."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.context import Shared
from jobs.cli.gateway_api import GatewayApi, api_of, checked_url
from jobs.errors import GatewayApiError
from jobs.stack.gateways import metrics_listeners
from jobs.stack.state import running_state
from schemas.settings import load_settings

Gateways = Annotated[
    list[str] | None,
    typer.Option("--gateway", metavar="URL", help="Use this gateway instead of the running stack's. May be repeated."),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the admin token. Default: the key gateway.admin_token_file.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def admin_apis(options: Shared, urls: list[str] | None, token_file: Path | None) -> list[GatewayApi]:
    """The gateways named by their URLs, or else those of the running stack. Raises StackError without a stack, and
    GatewayApiError for a URL or a token that cannot be used, or if no gateway has been ready yet."""
    if urls:
        settings, found = options.settings(), {checked_url(url): "" for url in urls}
    else:
        state = running_state(options.data())
        found = {api_of(listener): name for name, listener in metrics_listeners(state).items()}
        if not found:
            raise GatewayApiError("the gateway of the running stack is not ready yet: check `waystation status`")
        settings = load_settings([Path(path) for path in state.configuration], options.environ)
    token = _token(
        token_file or (Path(settings.gateway.admin_token_file) if settings.gateway.admin_token_file else None)
    )
    return [GatewayApi(url, token, name) for url, name in found.items()]


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GatewayApiError(f"cannot read the token file {path}: {error}") from error
    if not token or not token.isprintable():
        raise GatewayApiError(
            f"the token file {path} is empty or has unprintable characters: write the token into it, on one line"
        )
    return token
