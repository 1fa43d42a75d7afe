"""A chain as a tree: its jobs, above all that each of them waits for, below it all that needs it.

Upwards only blockers are followed and downwards only dependents, so a tree has what this chain
comes from and what comes of it. What is met twice is shown once; it is named again, not repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import views
from ..app import Towline
from ..app.handles import Chain, Job
from . import output

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

MOST = 100  # chains and jobs in a tree


class Growing:
    """A tree that is being read; there is room for so many more."""

    def __init__(self, app: Towline, most: int = MOST) -> None:
        self._app = app
        self._room = most
        self._seen: set[int] = set()

    def around(self, chain: Chain) -> views.Data:
        """The chain, with what it waits for and what needs it."""
        return self._chain(chain, None, up=True, down=True)

    def _chain(self, chain: Chain, name: str | None, *, up: bool, down: bool) -> views.Data:
        self._room -= 1
        node: views.Data = {
            "chain": chain.id, "task": chain.task, "state": str(chain.state), "name": name,
            "seen": chain.id in self._seen,
        }  # fmt: skip
        if node["seen"]:
            return node
        self._seen.add(chain.id)
        if chain.last is not None:
            members = self._app.jobs(chain=chain.id, newest=False, limit=max(self._room, 1))
            node["jobs"] = [self._job(job, up) for job in members if self._room > 0]
            node["more_jobs"] = max(chain.last.position + 1 - len(node["jobs"]), 0)
        if down:
            waiting = {d.own_chain_id: d.name for d in self._app.dependents(chain.id)}
            node["needed_by"] = [
                self._chain(self._app.chain(id), name, up=False, down=True)
                for id, name in waiting.items()
                if self._room > 0
            ]
            node["more_needed_by"] = len(waiting) - len(node["needed_by"])
        return node

    def _job(self, job: Job[Any], up: bool) -> views.Data:
        self._room -= 1
        node: views.Data = {"id": job.id, "task": job.task, "state": str(job.state)}
        if up:
            blockers = self._app.blockers(job.id)
            node["waits_for"] = [
                self._chain(self._app.chain(b.chain_id), b.name, up=True, down=False)
                for b in blockers
                if self._room > 0
            ]
            node["more_waits_for"] = len(blockers) - len(node["waits_for"])
        return node


def show_tree(node: views.Data) -> None:
    from rich.tree import Tree

    tree = Tree(_line("chain", node["chain"], node), guide_style="dim")
    _grow(tree, node)
    output.show(tree)


def _grow(tree: Tree, node: views.Data) -> None:
    """Hang below a chain what was read of it. A chain of one job is shown as that job."""
    jobs = node.get("jobs", [])
    for job in jobs:
        alone = len(jobs) == 1 and not node["more_jobs"]
        place = tree if alone else tree.add(_line("job", job["id"], job))
        for blocker in job.get("waits_for", []):
            _grow(place.add(_line("waits for chain", blocker["chain"], blocker)), blocker)
        _add_rest(place, job.get("more_waits_for", 0), "it waits for")
    _add_rest(tree, node.get("more_jobs", 0), "jobs")
    for dependent in node.get("needed_by", []):
        _grow(tree.add(_line("needed by chain", dependent["chain"], dependent)), dependent)
    _add_rest(tree, node.get("more_needed_by", 0), "that need it")


def _add_rest(tree: Tree, number: int, what: str) -> None:
    from rich.text import Text

    if number:
        tree.add(Text(f"and {number} more {what}", style="dim"))


def _line(what: str, id: int, node: views.Data) -> Text:
    from rich.text import Text

    name = f" as {node['name']}" if node.get("name") else ""
    task = output.shown_text(f"{node['task']}{name}", lines=False)
    line = Text.assemble((f"{what} {id}", "bold"), f"  {task}  ")
    line.append(node["state"], style=output.STYLES.get(node["state"], ""))
    if node.get("seen"):
        line.append("  (shown above)", style="dim")
    return line
