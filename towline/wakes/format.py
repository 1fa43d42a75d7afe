"""What is sent through a server: a JSON list of queue names; an empty one cannot say which."""

from __future__ import annotations

import json
from collections.abc import Collection


def pack(queues: Collection[str]) -> bytes:
    return json.dumps(sorted(queues)).encode()


def unpack(data: bytes) -> Collection[str] | None:
    """The queues, as a ring wants them; None also for what is not ours."""
    try:
        queues = json.loads(data)
    except ValueError:
        return None
    if isinstance(queues, list) and all(isinstance(queue, str) for queue in queues):
        return set(queues) or None
    return None
