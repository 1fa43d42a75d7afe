"""Where an app is defined, so that another process can find its own.

What a process runs is not in the database: it imports the modules that this process has
imported, and looks the task up by name in the app it finds there.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from ...errors import InvalidState, InvalidTask
from ...task.tasks import Tasks
from .protocol import Load

if TYPE_CHECKING:
    from ...app import Towline

# What multiprocessing calls the script of its parent, so code that knows one knows the other.
SCRIPT = "__mp_main__"
MAIN = "__main__"
FILE = "sqlite:///"


def search_path(modules: Sequence[str] = ()) -> list[str]:
    """Where modules are found, independent of the current directory: also those that were found in
    another one than it is now."""
    path = [os.path.abspath(str(entry)) for entry in sys.path]
    roots = filter(None, (_root(name) for name in modules))
    return list(dict.fromkeys([*path, *roots]))


def _root(name: str) -> str | None:
    """The folder in which a module or its outermost package was found."""
    spec = getattr(sys.modules.get(name.partition(".")[0]), "__spec__", None)
    origin = getattr(spec, "origin", None)
    if spec is None or not isinstance(origin, str) or not os.path.isabs(origin):
        return None
    folder = os.path.dirname(origin)
    return os.path.dirname(folder) if spec.submodule_search_locations else folder


def location_of(app: Towline) -> Load:
    """Find the app among the modules of this process, or raise InvalidTask.

    Every module that has the app as an attribute or defines a task of it is loaded over there, in
    the order they were loaded here: tasks, middleware and includes are the same then. An app that
    says itself where it is found is the whole of it.
    """
    if app.found_at is not None:
        home, name = app.found_at
        return Load(
            module=home, attribute=name, modules=[home], main_name=None, main_path=None,
            argv=list(sys.argv), url=app.url,
        )  # fmt: skip
    main_name, main_path = _main()
    homes: dict[str, str] = {}
    defining = {getattr(task.function, "__module__", "") for task in app.registry.values()}
    modules: list[str] = []
    for name, module in list(sys.modules.items()):
        names = _names(module)
        if not (main_name or main_path if name == MAIN else _is_importable(name, names)):
            continue
        attribute = next((name for name, value in names.items() if value is app), None)
        if attribute is not None:
            homes[name] = attribute
        if attribute is not None or name in defining:
            modules.append(name)
    if not homes:
        raise InvalidTask(
            'a task with run_in="process" needs its app at module level, such as '
            "`app = Towline(…)` in a file that can be imported: another process must find it. "
            f"No module of this process has {app!r} as an attribute"
        )
    home = next((name for name in homes if name != MAIN), MAIN)
    return Load(
        module=home,
        attribute=homes[home],
        modules=[name for name in modules if name != MAIN],
        main_name=main_name if MAIN in modules else None,
        main_path=main_path if MAIN in modules else None,
        argv=list(sys.argv),
        url=app.url,
        moved_to=_moved_to(app),
    )


def _moved_to(app: Towline) -> str | None:
    """Where its module does not say it is: the schema; None while it is where it says."""
    first, now = app.first_settings.engine, app.settings.engine
    schema = now.server.schema
    return None if (first.url, first.server.schema) == (now.url, schema) else schema


def _main() -> tuple[str | None, str | None]:
    """Name or path by which the script of this process can be loaded again; neither for a prompt
    or `-c`."""
    module = sys.modules.get(MAIN)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name != MAIN:
        return spec.name, None
    path = getattr(module, "__file__", None)
    return None, path and os.path.abspath(path)


def _names(module: object) -> dict[str, Any]:
    """What a module defines, past what lazy modules do when they are looked at."""
    try:
        return dict(object.__getattribute__(module, "__dict__"))
    except AttributeError:
        return {}


def _is_importable(name: str, names: dict[str, Any]) -> bool:
    """Under this very name, that is: modules have others too, and some are made by hand."""
    return name != SCRIPT and getattr(names.get("__spec__"), "name", None) == name


# ---- in the other process

_loading = False  # the script and the modules of the first process are imported


def refuse_while_loading() -> None:
    """Raise when a worker is started by what is imported, or there were no end of processes."""
    if _loading:
        raise InvalidState(
            "this script starts a worker whenever it is imported: "
            'put that under `if __name__ == "__main__":`, since run_in="process" imports it again'
        )


def load(order: Load) -> Towline:
    """Import what the first process has imported, and return the app of this one."""
    global _loading
    sys.argv[:] = order.argv
    _loading = True
    try:
        if order.main_name or order.main_path:
            _load_main(order.main_name, order.main_path or "")
        for name in order.modules:
            importlib.import_module(name)
        found: object = getattr(sys.modules[order.module], order.attribute, None)
    finally:
        _loading = False
    if not isinstance(found, Tasks) or not hasattr(found, "runner"):
        raise InvalidTask(f"{order.module}.{order.attribute} is no app when it is imported here")
    app = cast("Towline", found)
    if order.moved_to is not None:
        app.use(order.url, schema=order.moved_to)
    elif app.url != order.url:
        if not _is_same_file_from_elsewhere(app.url, order.url):
            raise InvalidTask(
                f"{order.module}.{order.attribute} has another URL in each process: "
                "take it from the environment or a file, not from something made anew"
            )
        app.use(order.url)
    return app


def _is_same_file_from_elsewhere(here: str, there: str) -> bool:
    """Whether both come of one relative path: here seen from the current directory, there from the
    one that the worker was in when it made its app, before it was changed."""
    if not (here.startswith(FILE) and there.startswith(FILE)):
        return False
    relative = os.path.relpath(unquote(here.removeprefix(FILE)), os.getcwd())
    while relative.startswith("../"):
        relative = relative.removeprefix("../")
    return unquote(there).endswith(f"/{relative}")


def _load_main(name: str | None, path: str) -> None:
    """Run the script, but not what stands under `if __name__ == "__main__":`.

    By hand: multiprocessing skips the `__main__` of a package, and with it as with runpy no module
    that the script imports could say `from __main__ import app`.
    """
    module = ModuleType(SCRIPT)
    if name is not None:
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if spec is None or loader is None:
            raise InvalidTask(f"the module {name} that is run cannot be found any more")
        code: CodeType = loader.get_code(name)
        module.__spec__, module.__package__, module.__file__ = spec, spec.parent, spec.origin
    else:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        module.__file__ = path
    sys.modules[SCRIPT] = sys.modules[MAIN] = module
    exec(code, vars(module))
