"""The command line: `towline …`, and `python -m towline …`, which is the same.

Each command opens an app, calls one or two of its methods and shows what came back; what it shows
for machines is in `views`, for people in `output`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    from .commands import group
    from .ending import run

    sys.exit(run(group, arguments))
