"""What `waystation X --help` shows is what the docstrings say: every word, in lines as wide as the terminal."""

import inspect

import pytest
import typer
from rich.text import Text

from edge.cli.helptext import flowing
from jobs.cli.main import COMMANDS, application


def commands(command, path=()):
    """Every command with its words, and the groups they belong to."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(application())))


def words(text):
    return text.split()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_word_of_a_help_text_is_lost_and_examples_keep_their_indentation(path, run, capfd, monkeypatch):
    """A word in brackets, such as the name of a table of the configuration, is no markup."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run(*path, "--help") == 0
    shown = capfd.readouterr().out
    written = inspect.getdoc(ALL[path].callback)
    assert written
    assert " ".join(words(written)) in " ".join(words(shown))
    for line in written.splitlines():
        if line.startswith("    waystation"):
            assert f" {line} " in shown


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_what_is_said_of_options_has_no_markup(path):
    for parameter in ALL[path].params:
        said = getattr(parameter, "help", None) or ""
        assert Text.from_markup(said).plain == said, parameter.name


def test_paragraphs_flow_and_indented_lines_stay():
    written = "First line\nof a [table].\n\nExamples:\n\n    waystation a\n    waystation b  [c]"
    lines = Text.from_markup(flowing(written)).plain.splitlines()
    assert lines == ["First line of a [table].", "", "Examples:", "", "    waystation a", "    waystation b  [c]"]


def test_each_module_has_the_commands_by_which_it_is_found() -> None:
    """A command that is missing there could only be reached together with all others."""
    everything = typer.main.get_command(application())
    assert sorted(everything.commands) == sorted(name for names in COMMANDS.values() for name in names)
    for names in COMMANDS.values():
        assert list(typer.main.get_command(application(names)).commands) == list(names)
