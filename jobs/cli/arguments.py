"""Commands that parse their arguments specially."""

import re
from itertools import zip_longest

import typer
from typer.core import TyperCommand

COMMENT = re.compile(r"--[^=\n]*\s")
"""Matches the start of an SQL comment; an option has no space in its name."""


class SqlCommand(TyperCommand):
    """Takes an argument that begins with an SQL comment as SQL, not as an option."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, [f"\n{one}" if COMMENT.match(one) else one for one in args])


class JourneyCommand(TyperCommand):
    """Allows `--last` without a number."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        given = []
        for one, following in zip_longest(args, args[1:], fillvalue=""):
            given += [one] if one != "--last" or following.isdecimal() else [one, "1"]
        return super().parse_args(ctx, given)
