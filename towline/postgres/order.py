"""The order of locks when jobs that have a key are about to wait for other chains.

All that it concerns is held, oldest first, before anything else is: of two batches each may be
about to change what the other waits for, and a chain that both share neither could hold any more.
"""

from __future__ import annotations

from collections.abc import Collection

from ..operation import Row, Steps
from ..store.ground import Ground, as_json, int_of


def hold_in_order(store: Ground, keys: Collection[Row], coming: Collection[int]) -> Steps[None]:
    """The chains that have these keys, what they wait for, and all that is to come before them."""
    named = as_json({"task": task, "key": key} for task, key in sorted(keys))
    found = {int_of(chain) for (chain,) in (yield store.sql.chains_of_keys(keys=named))}
    if not found:
        return
    rows = yield store.sql.blockers_of_jobs(jobs=as_json(found))
    found.update(int_of(chain) for (chain,) in rows)
    if coming:
        found |= yield from store.find_upstream(coming, reopened=False)
    yield from store.hold_chains(found)
