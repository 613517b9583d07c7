"""Settings of the operator's console: `[gateway.console]`. `conf/base.toml` documents every key."""

from typing import Annotated

from msgspec import Meta

from schemas.sections import Section

Application = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}\Z",
        description='"host:port" of an application\'s metrics, such as "router.example.org:9465"',
    ),
]


class ConsoleSettings(Section, frozen=True, kw_only=True):
    """`applications`: where the metrics of routers and ledger are, if not where `[router]` and `[ledger]` say."""

    enabled: bool
    applications: Annotated[list[Application], Meta(max_length=20)]
