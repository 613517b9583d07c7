"""`waystation agent up` without the libraries of the command line: it takes the plain forms of the command only.

Everything else, such as `--help` or a word that is wrong, goes to the full command line, which explains it.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "WAYSTATION_AGENT"
DEFAULT: Final = "agent.toml"


def settings_file(words: Sequence[str]) -> Path | None:
    """The file of `agent up`, `agent up --conf FILE` or `agent up --conf=FILE`; None for any other command."""
    match list(words):
        case ["agent", "up"]:
            return Path(os.environ.get(ENVIRONMENT) or DEFAULT)
        case ["agent", "up", "--conf", name] if name and not name.startswith("-"):
            return Path(name)
        case ["agent", "up", option] if option.startswith("--conf=") and option != "--conf=":
            return Path(option.removeprefix("--conf="))
    return None


def up(conf: Path) -> None:
    """Runs the agent until it is asked to end. Raises WaystationError."""
    from edge.agent.process import run
    from edge.agent.settings import load

    run(load(conf), say)


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
