"""An :class:`gateway.host.authenticator.Authenticator` (R11): tries methods in order, then gets the client's rules."""

from collections import Counter
from collections.abc import Callable, Sequence

from gateway.access.authorizer import Authorizer
from gateway.access.methods import Identity, Method
from gateway.errors import NotAdmitted
from gateway.host.authenticator import MESH_BEARER, Credentials
from gateway.shard.rules import ClientRules, Everything
from mqtt.codes import ReasonCode

Wrap = Callable[[ClientRules, Credentials], ClientRules]
"""Wraps further rules (:mod:`gateway.policy`) around those of a client."""


class MethodAuthenticator:
    """Tries the methods in order; the first that identifies the client decides. If a method refuses the client, a later
    one may still identify it, but never as anonymous. `authorizer` is None if admitted clients may do
    everything."""

    def __init__(
        self,
        methods: Sequence[Method],
        authorizer: Authorizer | None,
        counts: Counter[str],
        *,
        client_id_is_user: bool = False,
        wrap: Wrap | None = None,
    ) -> None:
        self._methods = methods
        self._authorizer = authorizer
        self._counts = counts
        self._client_id_is_user = client_id_is_user
        self._wrap = wrap

    async def admit(self, credentials: Credentials) -> ClientRules:
        if credentials.proven is not None:
            identity = Identity(*credentials.proven)
        elif credentials.bearer == MESH_BEARER:
            identity = Identity(credentials.client)
        else:
            identity = await self._identity(credentials)
        user, client = identity.user, credentials.client
        if self._client_id_is_user and client != user and credentials.bearer != "http":  # HTTP has its own client ids
            self._counts["not_admitted_client_id"] += 1
            raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, f"the client id is not the user name {user!r}")
        rules: ClientRules
        if self._authorizer is None:
            rules = Everything(user, identity.until)
        else:
            rules = self._authorizer.rules(user, client, identity.until)
        return rules if self._wrap is None else self._wrap(rules, credentials)

    def close(self) -> None:
        for method in self._methods:
            method.close()

    async def _identity(self, credentials: Credentials) -> Identity:
        refusal: tuple[str, NotAdmitted] | None = None
        for method in self._methods:
            if refusal is not None and method.name == "anonymous":
                break
            try:
                identity = await method.identify(credentials)
            except NotAdmitted as error:
                if error.reason is ReasonCode.SERVER_BUSY:
                    self._counts["not_admitted_busy"] += 1
                    raise
                refusal = refusal or (method.name, error)
                continue
            if identity is not None:
                return identity
        if refusal is not None:
            self._counts[f"not_admitted_{refusal[0]}"] += 1
            raise refusal[1]
        self._counts["not_admitted_unidentified"] += 1
        raise self._unidentified(credentials)

    def _unidentified(self, credentials: Credentials) -> NotAdmitted:
        names = ", ".join(method.name for method in self._methods)
        if credentials.username or credentials.password:
            detail = f"none of the methods {names} recognises the credentials"
            return NotAdmitted(ReasonCode.BAD_USER_NAME_OR_PASSWORD, detail)
        return NotAdmitted(ReasonCode.NOT_AUTHORIZED, f"the client sent no credentials; allowed methods: {names}")
