"""Write `conf/ivy*.xml`, which name every JVM library, from `tools/jars`, which say which ones are wanted.

    python -m tools.lock_jars            resolve what is wanted, with all that it depends on, and write the lists
    python -m tools.lock_jars --check    say whether the lists are what that gives; exit status 1 if not

Needs an environment with pyspark, which brings Ivy, and a JDK. Ivy asks for one file after the other: the first time it
takes some minutes.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from jobs.stack.jars import LOCAL, STORES, JarSet, cache_directory, ivy_command, ivy_file
from jobs.stack.java import find_java
from schemas.errors import WaystationError

WANTED = Path(__file__).resolve().parent / "jars"
IVY_CACHE = "ivy-with-dependencies"
"""Of its own: `waystation jars` leaves in Ivy's what each library is, without what it depends on."""


class Library(NamedTuple):
    """A jar of a configuration of Ivy's."""

    conf: str
    organisation: str
    name: str
    revision: str


def resolved(jar_set: JarSet) -> list[Library]:
    """What is wanted and all that it depends on, in order. Raises CalledProcessError if Ivy fails, ValueError for a
    jar that is not its module's only one."""
    with TemporaryDirectory() as directory:
        pattern = f"{directory}/[conf]/[organisation]/[module]/[revision]/[artifact](-[classifier]).[ext]"
        own_cache = "-cache", str(cache_directory(os.environ) / IVY_CACHE)
        command = ivy_command(find_java(os.environ).command, WANTED / jar_set.file, pattern, jar_set.confs, *own_cache)
        subprocess.run(command, check=True, stdout=sys.stderr)
        return sorted(_library(jar.relative_to(directory)) for jar in Path(directory).glob("*/*/*/*/*"))


def _library(jar: Path) -> Library:
    conf, organisation, name, revision, file = jar.parts
    if file != f"{name}.jar":
        raise ValueError(f"{organisation}#{name};{revision} has {file}, which a list cannot name")
    return Library(conf, organisation, name, revision)


def listing(jar_set: JarSet, libraries: Iterable[Library]) -> str:
    """The text of `conf/<file of the set>`."""
    confs = "".join(f'<conf name="{conf}"/>' for conf in jar_set.confs)
    lines = [
        '<ivy-module version="2.0">',
        f"  <!-- tools/lock_jars.py writes this. To change it, edit tools/jars/{jar_set.file} and run the tool. -->",
        f'  <info organisation="waystation" module={quoteattr("-".join(jar_set.confs))}/>',
        f"  <configurations>{confs}</configurations>",
        "  <dependencies>",
    ]
    for conf, *module in libraries:
        organisation, name, revision = map(quoteattr, module)
        lines.append(
            f'    <dependency org={organisation} name={name} rev={revision} conf="{conf}->default" transitive="false"/>'
        )
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    differs = []
    for jar_set in (LOCAL, *STORES.values()):
        text, file = listing(jar_set, resolved(jar_set)), ivy_file(jar_set)
        if not file.exists() or file.read_text() != text:
            differs.append(file.name)
            if not check:
                file.write_text(text)
    if differs:
        sys.stderr.write(f"{', '.join(differs)} {'differs from tools/jars' if check else 'written'}\n")
    return int(check and bool(differs))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (WaystationError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
