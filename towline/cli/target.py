"""Which app a command works on: `module:app` of the application, or the URL of a database."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import Any

import click

from ..app import Towline
from ..app.settings import DEFAULT_URL
from ..doctor import check
from ..engine import FILE
from . import completion
from .ending import CommandError

APP_VARIABLE, URL_VARIABLE = "TOWLINE_APP", "TOWLINE_URL"

HERE = os.path.dirname(os.path.dirname(__file__))

_NAME = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_WHICH = (
    f"which app? Name it as MODULE:APP (or ${APP_VARIABLE}), or its database with --url "
    f"(or ${URL_VARIABLE})"
)


def is_name(word: str) -> bool:
    """Whether a word looks like module:app."""
    return _NAME.fullmatch(word) is not None


def find_app(name: str | None, url: str | None, prefix: str | None, schema: str | None) -> Towline:
    """The application's own app, or one without tasks on a database."""
    if name and url:
        raise CommandError("either the app or --url, not both")
    if (prefix or schema) and not url:
        raise CommandError("--prefix and --schema belong to --url; an app knows its own")
    if not url:
        if name := name or os.environ.get(APP_VARIABLE):
            return load(name)
        url = os.environ.get(URL_VARIABLE)
        if url is None and os.path.exists(DEFAULT_URL.removeprefix(FILE)):
            url = DEFAULT_URL
        if url is None:
            raise CommandError(_WHICH)
    names = {"prefix": prefix, "schema": schema}
    given: dict[str, Any] = {key: name for key, name in names.items() if name is not None}
    return Towline(url, migrate=False, **given)


def load(name: str) -> Towline:
    """Import the app that module:app names; the current directory is looked at first."""
    module_name, _, attribute = name.partition(":")
    if not is_name(name):
        raise CommandError(f"{name!r} is not MODULE:APP, such as shop.tasks:app")
    module = _import(module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Towline):
        return found
    there = [key for key, value in vars(module).items() if isinstance(value, Towline)]
    hint = f"; there is {', '.join(f'{module_name}:{key}' for key in there)}" if there else ""
    what = "is not there" if found is None else f"is a {type(found).__name__}, no Towline app"
    raise CommandError(f"{name} {what}{hint}")


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "; leave .py away" if name.endswith(".py") else ""
            raise CommandError(
                f"there is no module {name}, neither here nor installed{hint}"
            ) from error
        raise CommandError(_not_imported(name, error)) from _from_its_own_lines(error)
    except (Exception, SystemExit) as error:
        raise CommandError(_not_imported(name, error)) from _from_its_own_lines(error)


def _from_its_own_lines(error: Exception | SystemExit) -> Exception | SystemExit:
    """With a traceback that begins at the application, not at how Python and we came there."""
    own = error.__traceback__
    while own is not None and _is_way(own.tb_frame.f_code.co_filename):
        own = own.tb_next
    return error.with_traceback(own)


def _is_way(path: str) -> bool:
    """Whether a frame belongs to the import itself."""
    return "importlib" in path or path == __file__


def _not_imported(name: str, error: Exception | SystemExit) -> str:
    """What went wrong, at which line of the application, and where it was raised."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not _is_way(frame.filename)
    ]
    own = [frame for frame in frames if not _is_library(frame.filename)]
    places = [_place(frame) for frame in ([*own[-1:]] or [*frames[-1:]])]
    hint = ""
    if own and frames[-1] is not own[-1]:
        places.append(f"raised in {_place(frames[-1])}")
        hint = "; --traceback shows the rest"
    where = f" ({'; '.join(places)})" if places else ""
    return f"{name} cannot be imported: {type(error).__name__}: {error}{where}{hint}"


def _place(frame: traceback.FrameSummary) -> str:
    path = frame.filename
    here = os.path.join(os.getcwd(), "")
    return f"{path.removeprefix(here)}, line {frame.lineno}"


def _is_library(path: str) -> bool:
    """Whether a file is Python's, ours or of an installed package, so not the application's."""
    homes = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return path.startswith((*(os.path.join(home, "") for home in homes), os.path.join(HERE, "")))


class Command(click.Command):
    """A command on one app: the app may come first among its words, or as an option.

    `words` names its arguments in the usage line: there are `least` to `most` of them. With
    `creates` the tables need not be there; with `needs_tasks` a database alone will not do.
    """

    def __init__(
        self,
        *args: Any,
        words: str = "",
        least: int = 0,
        most: int | None = 0,
        creates: bool = False,
        needs_tasks: bool = False,
        **settings: Any,
    ) -> None:
        self._least, self._most, self._creates = least, most, creates
        self._needs_tasks = needs_tasks
        self._words = words
        settings["params"] = [
            click.Argument(
                ["words"],
                nargs=-1,
                metavar=f"[MODULE:APP] {words}".strip(),
                shell_complete=completion.words(words),
            ),
            *settings.get("params", ()),
            click.Option(["--app", "name"], metavar="MODULE:APP", help="The app, by its module."),
            click.Option(["--url"], help="The database, without the application's code."),
            click.Option(["--prefix"], help="With --url: how the names of its tables begin."),
            click.Option(["--schema"], help="With --url: its schema on PostgreSQL."),
        ]
        super().__init__(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        words: Sequence[str] = ctx.params.pop("words")
        given = {key: ctx.params.pop(key) for key in ("name", "url", "prefix", "schema")}
        if words and is_name(words[0]) and not given["name"] and not given["url"]:
            # A queue may look like an app: it is one if the app is known and no word is left over.
            known = APP_VARIABLE in os.environ or URL_VARIABLE in os.environ
            if len(words) > self._least or not known:
                given["name"], *words = words
        if len(words) < self._least:
            missing = " ".join(self._words.split()[len(words) :])
            raise click.UsageError(f"missing {missing}", ctx)
        if self._most is not None and len(words) > self._most:
            extra = " ".join(words[self._most :])
            hint = "" if is_name(extra) else "; an app is named MODULE:APP"
            if self.name == "enqueue" or all("=" in word for word in words[self._most :]):
                hint = "; arguments of a task go by -p name=value, or --args with JSON"
            raise click.UsageError(f"did not expect {extra!r}{hint}", ctx)
        if self._words:
            ctx.params["words"] = tuple(words)
        # An application that prints while it is imported does not spoil the document.
        with redirect_stdout(sys.stderr) if ctx.params.get("as_json") else nullcontext():
            app = find_app(**given)
        if self._needs_tasks and not app.registry:
            raise CommandError(
                f"{self.name} needs your tasks: name MODULE:APP (or ${APP_VARIABLE}) instead of a "
                "database; and see that its modules are imported by it"
            )
        try:
            if not self._creates:
                check(app)
            ctx.params["app"] = app
            return super().invoke(ctx)
        finally:
            app.close()
