"""The entry point of `waystation`: `agent …`, `ca …`, and of `feed …` what the device needs; all other words are the
platform's, if it is installed.

The distribution `waystation` names its command line as an entry point of the group `waystation.commands`. It is loaded
only if the first word is none of ours: on a device the agent must not pay for what it does not use. For the same reason
`agent up`, which runs for months, does without the libraries of the command line, which take 12 MB
(:mod:`edge.cli.resident`).
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from edge.cli import resident
from schemas.errors import WaystationError
from schemas.visible import visible

if TYPE_CHECKING:
    import typer

GROUP: Final = "waystation.commands"
OWN: Final = ("agent", "ca", "feed")
SHARED: Final = "feed"
"""The group to which the platform, if it is installed, adds commands."""
USAGE_STATUS: Final = 2


class NotInstalled(WaystationError):
    """The command is the platform's, which is not installed or damaged."""

    exit_status = USAGE_STATUS


def application() -> "typer.Typer":
    """The command line of a device, without the platform's commands."""
    from edge.cli import agent, ca, feed
    from edge.cli.application import new_application, options
    from edge.cli.helptext import let_flow

    app = new_application(options)
    for name, commands in zip(OWN, (agent.commands, ca.commands, feed.commands), strict=True):
        app.add_typer(commands(), name=name)
    let_flow(app)
    return app


def main() -> None:
    """Run the command line. A WaystationError prints one sentence and sets its exit status; never a traceback."""
    sys.exit(_run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    try:
        if (conf := resident.settings_file(words)) is not None:
            resident.up(conf)
            return 0
        found = None if _is_own(words) else _platform()
        if found is not None:
            _loaded(found)()
        elif _is_of_platform(words):
            raise NotInstalled(
                f"`waystation {visible(_command(words))}` is a command of the platform, which is not installed here: "
                "install the distribution waystation, or see `waystation agent --help`"
            )
        else:
            application()(list(words))
    except WaystationError as error:
        text = "\n".join(map(visible, str(error).split("\n")))
        sys.stderr.write(f"\x1b[31m{text}\x1b[0m\n" if sys.stderr.isatty() else f"{text}\n")
        return error.exit_status
    return 0


def _is_own(words: Sequence[str]) -> bool:
    """Whether the device's command line runs this. The group `feed` has commands of both: the platform lists them
    all."""
    if words[:1] == [SHARED]:
        from edge.cli import feed

        return len(words) > 1 and words[1] in feed.names()
    return bool(words) and words[0] in OWN


def _is_of_platform(words: Sequence[str]) -> bool:
    return bool(words) and not _command(words).rpartition(" ")[2].startswith("-") and not _is_own(words)


def _command(words: Sequence[str]) -> str:
    """The words that name the command; of a group that both have, two."""
    return " ".join(words[: 2 if words[0] == SHARED else 1])


def _platform() -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP)), None)


def _loaded(found: EntryPoint) -> Callable[[], object]:
    try:
        return found.load()  # type: ignore[no-any-return]
    except ImportError as error:
        raise NotInstalled(
            f"the platform's commands cannot be loaded ({error}): install waystation and waystation-edge of the same "
            "version"
        ) from error


if __name__ == "__main__":
    main()
