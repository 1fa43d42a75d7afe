"""Prompts of Python and of IPython: what is typed there belongs to a new module `__main__`."""

from __future__ import annotations

import ast
import asyncio
import code
import inspect
import sys
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any

MAIN = "__main__"


def has_ipython() -> bool:
    return find_spec("IPython") is not None


def main_with(names: dict[str, Any]) -> dict[str, Any]:
    """The names of a new `__main__` that has these."""
    module = sys.modules[MAIN] = ModuleType(MAIN)
    vars(module).update(names)
    return vars(module)


class IPythonPrompt:
    """IPython's, which awaits by itself."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def begin(self, banner: str) -> None:
        from IPython import start_ipython
        from traitlets.config import Config

        config = Config()
        config.TerminalInteractiveShell.banner1 = f"{banner}\n"
        start_ipython(argv=[], user_ns=main_with(self._names), config=config)


class Prompt(code.InteractiveConsole):
    """Python's, with an event loop that runs what is awaited."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._main = main_with(names)
        super().__init__(self._main)
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def begin(self, banner: str) -> None:
        try:
            import readline  # noqa: F401 (lines can be edited from now on)
        except ImportError:
            pass
        with asyncio.Runner() as self._runner:
            self.interact(banner, exitmsg="")

    def runcode(self, code: CodeType) -> None:
        try:
            found: object = FunctionType(code, self._main)()
            if inspect.iscoroutine(found):
                self._runner.run(found)
        except SystemExit:
            raise
        except BaseException:
            self.showtraceback()
