"""Control and upkeep, each method twice: blocking, and awaiting with an `a` in front.

`by`, where it is given, says who it was, in the history that `audit()` reads.
Each builds an operation of the store and runs it, on our connection or on the caller's (`on=`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Unpack, get_args

from ..errors import InvalidSetting, InvalidState, NotFound, StillNeeded, StoreError
from ..executor import in_thread
from ..model import ChainState
from ..naming import check_name, check_pausable
from ..operation import Op
from ..records import NewJob
from ..runner import Loop
from ..store.retention import KeepFor, noted
from ..task import Next
from ..task.batch import next_job
from ..times import Seconds, micros
from .changes import Changes
from .filters import ChainsWhere, JobsWhere, bulk_chain_filter, bulk_filter, check_id
from .handles import Job
from .limits import Limits

BULK_PAGE = 200
VACUUM_PAGES = 1000
Ended = Literal["completed", "failed", "cancelled"]
ENDED: tuple[Ended, ...] = get_args(Ended)
REFUSED = (InvalidState, NotFound, StillNeeded)  # a chain that is not to be deleted, or is gone


class Management(Changes, Limits):
    """Everything one does with jobs that exist."""

    # ---- control

    def cancel(
        self, id: int, *, reason: str | None = None, by: str | None = None, on: object = None
    ) -> Job[Any]:
        """End an open job as cancelled, its chain with it; dependents follow their policy."""
        return Job(self, self.runner.run(self._store.cancel(check_id(id), reason, by), on))

    async def acancel(
        self, id: int, *, reason: str | None = None, by: str | None = None, on: object = None
    ) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.cancel(check_id(id), reason, by), on))

    def retry(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Make a failed or cancelled job pending again, with what its failure had failed."""
        return Job(self, self.runner.run(self._store.retry(check_id(id), by), on))

    async def aretry(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.retry(check_id(id), by), on))

    def run_now(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Make a scheduled job pending at once; one that is pending already stays as it is."""
        return Job(self, self.runner.run(self._store.run_now(check_id(id), by), on))

    async def arun_now(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.run_now(check_id(id), by), on))

    def complete(
        self, id: int, value: Any = None, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        """Complete an open job from outside, with a value or with `task.then(...)`.

        A worker that runs it loses it. The value is checked against the task's return type.
        """
        ending = self._outcome(self.target(id, on=on).task, value)
        return Job(self, self.runner.run(self._store.complete(id, *ending, by), on))

    async def acomplete(
        self, id: int, value: Any = None, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        ending = self._outcome((await self.atarget(id, on=on)).task, value)
        return Job(self, await self.runner.arun(self._store.complete(id, *ending, by), on))

    def fail(self, id: int, reason: str, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Fail an open job from outside, without another try."""
        return Job(self, self.runner.run(self._store.fail(check_id(id), reason, by), on))

    async def afail(
        self, id: int, reason: str, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.fail(check_id(id), reason, by), on))

    def cancel_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        """Cancel every open job that fits; return how many, or with preview how many it would.

        Without a filter it is refused, unless everything=True says that all are meant.
        """
        return self.runner.run_each(self._bulk("cancel", where, everything, preview, by), on)

    async def acancel_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        return await self.runner.arun_each(self._bulk("cancel", where, everything, preview, by), on)

    def retry_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        """Retry every failed or cancelled job that fits; return how many, or how many it would.

        Without a filter it is refused, unless everything=True says that all are meant.
        """
        return self.runner.run_each(self._bulk("retry", where, everything, preview, by), on)

    async def aretry_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        return await self.runner.arun_each(self._bulk("retry", where, everything, preview, by), on)

    def run_now_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        """Make every scheduled job that fits pending; return how many, or how many it would.

        Without a filter it is refused, unless everything=True says that all are meant.
        """
        return self.runner.run_each(self._bulk("run_now", where, everything, preview, by), on)

    async def arun_now_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        loop = self._bulk("run_now", where, everything, preview, by)
        return await self.runner.arun_each(loop, on)

    def delete(
        self,
        chain_id: int,
        cascade: bool = False,
        *,
        force: bool = False,
        by: str | None = None,
        on: object = None,
    ) -> list[int]:
        """Delete a chain with all that belongs to it; return the chains that went.

        With cascade also the chains it waited for. Refused while another open job waits for it,
        and while a job of it runs, unless forced: then its worker loses it.
        """
        op = self._store.delete([check_id(chain_id)], cascade, force, by)
        return self.runner.run(op, on)

    async def adelete(
        self,
        chain_id: int,
        cascade: bool = False,
        *,
        force: bool = False,
        by: str | None = None,
        on: object = None,
    ) -> list[int]:
        op = self._store.delete([check_id(chain_id)], cascade, force, by)
        return await self.runner.arun(op, on)

    def delete_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        cascade: bool = False,
        force: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[ChainsWhere],
    ) -> int:
        """Delete every chain that fits and that `delete` would not refuse; return how many went.

        Open ones only if `state` says so. With preview, how many fit. Without a filter it is
        refused, unless everything=True says that all are meant.
        """
        loop = self._delete_many(where, everything, preview, cascade, force, by)
        return self.runner.run_each(loop, on)

    async def adelete_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        cascade: bool = False,
        force: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[ChainsWhere],
    ) -> int:
        loop = self._delete_many(where, everything, preview, cascade, force, by)
        return await self.runner.arun_each(loop, on)

    def pause(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        """Stop claims from a queue, for all workers, until it is resumed; "*" is every queue, also
        those that are not used yet."""
        self.runner.run(self._store.pause(check_pausable(queue), by), on)

    async def apause(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        await self.runner.arun(self._store.pause(check_pausable(queue), by), on)

    def resume(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        """Let workers claim from a paused queue again. "*" ends a pause of "*": a queue that was
        paused by its name stays so."""
        self.runner.run(self._store.resume(check_name(queue, "queue"), by), on)

    async def aresume(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        await self.runner.arun(self._store.resume(check_name(queue, "queue"), by), on)

    # ---- upkeep

    def prune(
        self, *, older_than: Seconds | None = None, state: Ended | Iterable[Ended] | None = None,
        preview: bool = False, by: str | None = None, on: object = None,
    ) -> int:  # fmt: skip
        """Delete ended chains that are older than they are kept, or than this; return how many, or
        with preview how many it would. With `by` each batch leaves a line in the history."""
        return self.runner.run_each(self._prune(older_than, state, preview, by), on)

    async def aprune(
        self, *, older_than: Seconds | None = None, state: Ended | Iterable[Ended] | None = None,
        preview: bool = False, by: str | None = None, on: object = None,
    ) -> int:  # fmt: skip
        return await self.runner.arun_each(self._prune(older_than, state, preview, by), on)

    def vacuum(self, pages: int = VACUUM_PAGES) -> int:
        """Give up to `pages` free pages back to the system, while workers run; return how many."""
        return self.runner.engine.vacuum(pages)

    async def avacuum(self, pages: int = VACUUM_PAGES) -> int:
        return await in_thread(self.runner.engine.vacuum, pages)

    # ---- shared by both twins

    def _outcome(self, task: str, value: Any) -> tuple[str | None, NewJob | None]:
        if isinstance(value, Next):
            following = next_job(value)
            self.refuse_too_heavy(following)
            if self.tracing is not None:
                self.tracing.continues(following)
            return None, following
        if task in self.registry:
            signature = self.registry[task].signature
            return signature.encode_output(value, limit=self.settings.payload_limit), None
        from ..task.signature import encode_plain

        return encode_plain(value, limit=self.settings.payload_limit), None

    # ---- page by page, a transaction each, so that workers get in between

    def _bulk(
        self,
        action: str,
        where: JobsWhere,
        everything: bool,
        preview: bool,
        by: str | None,
    ) -> Loop[int]:
        filter = bulk_filter(f"{action}_many()", where, everything)
        number: int = 0
        cursor: int | None = None
        while True:
            try:
                page = yield self._store.bulk(action, filter, preview, cursor, BULK_PAGE, by)
            except StoreError as error:
                raise _in_part(error, number, "jobs") from error
            number += page.number
            cursor = page.cursor
            if cursor is None:
                return number

    def _delete_many(
        self,
        where: ChainsWhere,
        everything: bool,
        preview: bool,
        cascade: bool,
        force: bool,
        by: str | None,
    ) -> Loop[int]:
        filter = bulk_chain_filter("delete_many()", where, everything)
        number: int = 0
        cursor: int | None = None
        while True:
            try:
                page = yield self._store.chains(filter, BULK_PAGE, cursor)
                ids = [
                    chain.id
                    for chain in page.records
                    if filter.state is not None or chain.state is not ChainState.OPEN
                ]
                if preview:
                    number += len(ids)
                else:
                    number += yield from self._delete(ids, cascade, force, by)
            except StoreError as error:
                raise _in_part(error, number, "chains") from error
            cursor = page.cursor
            if cursor is None:
                return number

    def _delete(self, ids: list[int], cascade: bool, force: bool, by: str | None) -> Loop[int]:
        """Delete these together, or, when one of them must stay, one after the other: those that
        wait come before what they wait for."""
        try:
            return len((yield self._store.delete(ids, cascade, force, by))) if ids else 0
        except REFUSED:
            if len(ids) == 1:
                return 0
        number: int = 0
        for id in ids:
            number += yield from self._delete([id], cascade, force, by)
        return number

    def _prune(
        self, older_than: Seconds | None, state: Ended | Iterable[Ended] | None, preview: bool,
        by: str | None,
    ) -> Loop[int]:  # fmt: skip
        ages = ages_of(self.settings.keep, older_than, state)
        usual = ages == self.settings.keep and not preview
        number: int = 0
        position: int = 0
        while True:
            store = self._store
            batch = store.prune(ages) if usual else store.prune_by(ages, position, preview)
            if by is not None and not preview:
                age = None if older_than is None else micros(older_than)
                batch = Op("prune", noted, store, batch, ages, age, by, loss=batch.loss, by=by)
            pruned = yield batch
            number, position = number + pruned.chains, pruned.position
            if pruned.done:
                return number


def ages_of(
    keep: KeepFor, older_than: Seconds | None, state: Ended | Iterable[Ended] | None
) -> KeepFor:
    """How old chains of each state must be to go."""
    wanted = [state] if isinstance(state, str) else list(ENDED if state is None else state)
    for each in wanted:
        if each not in ENDED:
            raise InvalidSetting(f"prune(state=) is {', '.join(ENDED)}, not {each!r}")
    age = None if older_than is None else micros(older_than, "older_than")
    if age is not None and age < 0:
        raise InvalidSetting("older_than= cannot be negative")
    ages = {each: getattr(keep, each) if age is None else age for each in ENDED if each in wanted}
    return KeepFor(*(ages.get(each) for each in ENDED))


def _in_part(error: StoreError, number: int, what: str) -> StoreError:
    """What goes page by page has done the pages before."""
    if not number:
        return error
    return type(error)(
        f"{error}; {number} {what} were done before that: call it again for the rest"
    )
