"""Every `waystation …` that the documentation shows exists, with its options, and parses. Nothing is run."""

import inspect
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer

from jobs.cli.main import application
from tests.documents import PAGES, ROOT, code_blocks

ENDS = {"|", ">", "<", "&&", "||", ";", "&", "2>", ">>"}
NOT_OURS = {("version", "…")}
"""What `$SYS/broker/version` says."""
ROOT_COMMAND: Any = typer.main.get_command(application())


class Shown(NamedTuple):
    """A command line as a page shows it; `whole` if it is one to paste, else one in the middle of a sentence."""

    where: str
    arguments: tuple[str, ...]
    whole: bool


def fenced(text: str) -> Iterator[str]:
    """Lines of blocks of shell, those that are continued as one."""
    for block in code_blocks(text, "sh", "bash", "console"):
        yield from block.replace("\\\n", " ").splitlines()


def shown() -> Iterator[Shown]:
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        text = page.read_text()
        name = page.relative_to(ROOT)
        for line in fenced(text):
            yield from commands_in(line, str(name), True)
        for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
            yield from commands_in(code, str(name), False)
    for path, command in every_command(ROOT_COMMAND):
        for line in (inspect.getdoc(command.callback) or "").splitlines():
            if line.startswith("    "):
                yield from commands_in(re.sub(r"\s{3,}.*", "", line.strip()), f"{' '.join(path)} --help", True)


def commands_in(line: str, where: str, whole: bool) -> Iterator[Shown]:
    for part in re.split(r"\$\(|\)(?=$|\s)", line):
        try:
            words = shlex.split(part, comments=whole)
        except ValueError:
            continue
        while words and words[0].rpartition("/")[2] != "waystation":
            words = words[1:] if re.match(r"[A-Z_]+=", words[0]) else []
        arguments = words[1:]
        end = next((n for n, word in enumerate(arguments) if word in ENDS), len(arguments))
        if arguments[:end] and tuple(arguments[:end]) not in NOT_OURS:
            yield Shown(where, tuple(arguments[:end]), whole)


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*path, name))


ALL = sorted(set(shown()))


def parsed(command: Any, arguments: list[str], parent: Any = None) -> None:
    """As the command line would, short of running it."""
    context = command.make_context(command.name, arguments, parent=parent)
    if hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        _, inner, rest = command.resolve_command(context, rest)
        parsed(inner, rest, context)


@pytest.mark.parametrize("line", [one for one in ALL if one.whole], ids=lambda one: " ".join(one.arguments))
def test_a_command_line_to_paste_parses(line: Shown) -> None:
    parsed(ROOT_COMMAND, list(line.arguments))


def optional(word: str) -> str:
    """`[PREFIX]` and `[--dry-run]` as one would write them."""
    return word.strip("[]")


@pytest.mark.parametrize("line", [one for one in ALL if not one.whole], ids=lambda one: " ".join(one.arguments))
def test_a_command_within_a_sentence_exists_with_its_options(line: Shown) -> None:
    command, known = ROOT_COMMAND, set[str]()
    words = [optional(word) for word in line.arguments]
    known |= {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}
    for word in words:
        if hasattr(command, "commands") and word in command.commands:
            command = command.commands[word]
            known |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        elif word == "--":
            return
        elif word.startswith("--"):
            assert word.partition("=")[0] in known, f"{line.where}: {word}"
    placeholder = words[0].isupper() or words[0] in ("…", "X")
    assert command is not ROOT_COMMAND or placeholder or words[0].startswith("-"), f"{line.where}: {words[0]}"


def test_there_are_such_lines() -> None:
    assert len([one for one in ALL if one.whole]) > 40
    assert len([one for one in ALL if not one.whole]) > 20
