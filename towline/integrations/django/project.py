"""The apps of a Django project: one for each alias of TASKS that is ours, in its own database.

An app follows its entry in DATABASES, so that it is on the test database while tests run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from copy import deepcopy
from importlib import import_module
from threading import Lock
from typing import Any, Unpack

from asgiref.sync import SyncToAsync
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import autodiscover_modules, import_string

from ...app import Towline
from ...errors import InvalidSetting
from ...naming import check_known
from ...runner import Runner
from ...task import Task
from ...task.context import Context
from ...task.retry import Defaults
from ...worker import Worker
from ...worker.settings import WorkerSettings
from .address import url_of

OURS = ("database", "inline", "max_attempts", "modules", "timeout")  # beside settings of Towline
NOT_SAID_HERE = ("url", "clock", "migrate", "defaults")
TARGET = "towline.integrations.django.target"  # where commands and processes find an app
ADDRESS = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")


class ProjectApp(Towline):
    """The app of one alias: Django's database, and its connections closed around each attempt."""

    def __init__(self, alias: str, queues: set[str], options: dict[str, Any]) -> None:
        known = [*(Towline.__init__.__kwdefaults__ or ()), *OURS]
        try:
            check_known(
                f'TASKS["{alias}"]["OPTIONS"]',
                options,
                [name for name in known if name not in NOT_SAID_HERE],
            )
        except InvalidSetting as error:
            raise ImproperlyConfigured(str(error)) from None
        self.alias = alias
        self.found_at = TARGET, alias
        self.database: str = options.get("database", "default")
        self.modules: list[str] = list(options.get("modules", ()))
        self.queues = queues
        if self.database not in connections.settings:
            raise ImproperlyConfigured(
                f'TASKS["{alias}"]: there is no database {self.database!r} in DATABASES'
            )
        self._at = self._now_at()
        super().__init__(
            url_of(connections.settings[self.database]),
            migrate=False,
            defaults=Defaults(
                max_attempts=options.get("max_attempts", 1), timeout=options.get("timeout")
            ),
            **{name: value for name, value in options.items() if name not in OURS},
        )
        self._queues |= queues
        self.add_middleware(around_an_attempt)

    @property
    def connection(self) -> Any:
        """Django's connection of this thread."""
        return connections[self.database]

    # Read at each use: a test gives the database another name, and its old one back.
    @property
    def runner(self) -> Runner:
        if self._at != (at := self._now_at()):
            self._at = at
            self.use(url_of(connections.settings[self.database]))
        return self._runner

    @runner.setter
    def runner(self, runner: Runner) -> None:
        self._runner = runner

    def _now_at(self) -> list[object]:
        database = connections.settings[self.database]
        return [database.get(name) for name in ADDRESS]

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """A worker of every queue that TASKS allows: all, where QUEUES is empty."""
        if settings.get("queues") is None:
            settings["queues"] = sorted(self.queues) or ["*"]
        return super().worker(**settings)

    def _mention(self, queue: str) -> None:
        if self.queues:
            super()._mention(queue)

    def replace_task(self, task: Task[..., Any]) -> Task[..., Any]:
        """Take in a task; one of its name is of a module that was imported anew."""
        self.registry.pop(task.name, None)
        self._register(task, task.name)
        return task

    def discover(self) -> None:
        """Import what declares tasks: `tasks` of every installed app, and OPTIONS["modules"]."""
        autodiscover_modules("tasks")
        for name in self.modules:
            import_module(name)


def around_an_attempt(context: Context) -> Generator[None, Any, None]:
    """A connection that the database has dropped, or that is too old, is not used again; and none
    is left open by a thread that runs nothing."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        close_old()
        try:
            yield
        finally:
            close_old()
    else:  # Django's queries are made in a thread that all awaiting handlers share
        SyncToAsync.single_thread_executor.submit(close_old)
        try:
            yield
        finally:
            SyncToAsync.single_thread_executor.submit(close_old)


def close_old() -> None:
    """As Django does around a request; but what is in a transaction belongs to a test."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
            connection.queries_log.clear()  # which DEBUG fills


# ---- by alias

_now: dict[str, ProjectApp] = {}
_made: list[tuple[str, dict[str, Any], ProjectApp]] = []  # also for entries that tests have changed
_making = Lock()


def app_of(alias: str) -> ProjectApp:
    """The app of an alias of TASKS, made on first use; all threads share it."""
    found = _now.get(alias)
    if found is None:
        with _making:
            found = _now[alias] = _app_for(alias, settings.TASKS[alias])
    return found


def _app_for(alias: str, entry: dict[str, Any]) -> ProjectApp:
    """The same one for the same entry: modules have imported it."""
    for known, its_entry, app in _made:
        if known == alias and its_entry == entry:
            return app
    app = ProjectApp(alias, set(entry.get("QUEUES", ["default"])), entry.get("OPTIONS", {}))
    _made.append((alias, deepcopy(entry), app))
    return app


def aliases() -> list[str]:
    """Those of TASKS that are ours, "default" first."""
    from .bridge import Backend

    ours = []
    for alias, entry in getattr(settings, "TASKS", {}).items():
        try:
            kind = import_string(entry["BACKEND"])
        except ImportError:  # Django's own check says so
            continue
        if isinstance(kind, type) and issubclass(kind, Backend):
            ours.append(alias)
    return sorted(ours, key=lambda alias: (alias != "default", alias))


def main_app() -> ProjectApp:
    ours = aliases()
    if not ours:
        raise ImproperlyConfigured(
            "no entry of TASKS is Towline's: TASKS = "
            '{"default": {"BACKEND": "towline.integrations.django.Backend"}}'
        )
    return app_of(ours[0])


def look_again(*, setting: str, **_: Any) -> None:
    """A test has other settings, or its old ones again."""
    if setting == "TASKS":
        _now.clear()


def let_go_of_test_databases() -> None:
    """Close connections of ours before Django drops a database that a test has made: PostgreSQL
    drops none that is in use, and Django tells nobody."""
    for connection in connections.all():
        creation = connection.creation
        drop = creation._destroy_test_db

        def let_go(*given: Any, drop: Any = drop, alias: str = connection.alias) -> None:
            for _, _, app in _made:
                if app.database == alias:
                    app.close()
            drop(*given)

        creation._destroy_test_db = let_go


setting_changed.connect(look_again)
