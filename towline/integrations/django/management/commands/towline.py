"""`manage.py towline …`: every command of `towline`, on the app of this project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from .....cli import main
from .....cli.ending import complain
from .....cli.target import APP_VARIABLE
from .....exit_codes import USAGE
from ...project import TARGET, aliases

DJANGOS = ("--settings", "--pythonpath")  # options that manage.py has read itself


class Command(BaseCommand):
    """Leaves everything to the command line of Towline."""

    help = "Background work: worker, jobs, retry, dashboard and more; towline --help lists them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
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

    def handle(self, *args: Any, words: list[str], **options: Any) -> None:
        """As `call_command` does it."""
        try:
            self.run(words)
        except SystemExit as end:
            if end.code:
                raise CommandError(f"towline ended with {end.code}", returncode=end.code) from None

    def run(self, words: list[str]) -> None:
        alias, words = _alias(words)
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
    """Which entry of TASKS: `--tasks=reports`, or the first that is ours."""
    ours = aliases()
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--tasks":
            rest = [*words[:number], *words[number + (1 if equals else 2) :]]
            wanted = value if equals else "".join(words[number + 1 : number + 2])
            if wanted not in ours:
                raise CommandError(f"no entry {wanted!r} of TASKS is Towline's: {', '.join(ours)}")
            return wanted, rest
    if not ours:
        raise CommandError("no entry of TASKS is Towline's")
    return ours[0], words


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
