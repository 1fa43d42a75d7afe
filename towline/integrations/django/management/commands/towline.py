"""`manage.py towline …`: every command of `towline`, on the app of this project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from shlex import quote
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE
from django.core.management.base import BaseCommand, CommandError, CommandParser

from .....cli import main
from .....cli.ending import complain
from .....cli.target import APP_VARIABLE
from .....exit_codes import USAGE
from ...project import TARGET, aliases

DJANGOS = ("--settings", "--pythonpath")  # options that manage.py has read itself
HELP = {"-h", "--help"}


class Command(BaseCommand):
    """Leaves everything to the command line of Towline."""

    help = "Background work: worker, jobs, retry, dashboard and more; towline --help lists them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tasks", metavar="ALIAS", help="which entry of TASKS; comes first")
        parser.add_argument("words", nargs=REMAINDER, help="as behind `towline`")

    def run_from_argv(self, argv: list[str]) -> None:
        """The words as they are: Django's parser would take some of them for its own."""
        # Workers of a supervisor are started by `python -m towline`, and must find the project.
        place = os.path.dirname(os.path.abspath(argv[0]))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([place, *filter(None, paths)]))
        try:
            self.run(_without_djangos(argv[2:]))
        except CommandError as error:
            sys.exit(complain(str(error), USAGE))

    def handle(
        self, *args: Any, words: list[str], tasks: str | None = None, **options: Any
    ) -> None:
        """As `call_command` does it."""
        try:
            self.run(words if tasks is None else [f"--tasks={tasks}", *words])
        except SystemExit as end:
            if end.code:
                raise CommandError(f"towline ended with {end.code}", returncode=end.code) from None

    def run(self, words: list[str]) -> None:
        alias, words = _alias(words)
        _refuse_agents(alias, words)
        before = os.environ.get(APP_VARIABLE)
        os.environ[APP_VARIABLE] = f"{TARGET}:{alias}"
        try:
            main(words)
        finally:
            if before is None:
                del os.environ[APP_VARIABLE]
            else:
                os.environ[APP_VARIABLE] = before


def _alias(words: list[str]) -> tuple[str, list[str]]:
    """Which entry of TASKS: `--tasks=reports` before the command's name, or the first that is ours.
    Behind that name it is an option of the command: `stats --tasks`."""
    ours = aliases()
    option, equals, wanted = (words[0] if words else "").partition("=")
    if option == "--tasks":
        if not equals:
            wanted = "".join(words[1:2])
        if wanted not in ours:
            raise CommandError(f"no entry {wanted!r} of TASKS is Towline's: {', '.join(ours)}")
        return wanted, words[1 if equals else 2 :]
    if not ours:
        raise CommandError("no entry of TASKS is Towline's")
    return ours[0], words


def _refuse_agents(alias: str, words: list[str]) -> None:
    """An agent's client reads stdout, where settings and models may have printed by now: they were
    imported before we were asked. `towline mcp` takes stdout away before it imports them."""
    name = next((word for word in words if not word.startswith("-")), None)
    if name == "mcp" and HELP.isdisjoint(words):
        found = f"{ENVIRONMENT_VARIABLE}={quote(os.environ.get(ENVIRONMENT_VARIABLE, '…'))}"
        raise CommandError(
            "agents read stdout, where this project may have printed already: start "
            f"`{found} towline mcp {TARGET}:{alias}` in the folder of manage.py, with the same "
            "options",
            returncode=USAGE,
        )


def _without_djangos(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in DJANGOS:
            skip = True
        elif not word.startswith(tuple(f"{option}=" for option in DJANGOS)):
            kept.append(word)
    return kept
