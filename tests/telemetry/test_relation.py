"""T3: how spans hang together: link, child, or as a function says; chains, blockers, samplers."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanContext, TraceFlags, get_current_span

from tests.telemetry.collected import Collected, attributes, ids, links, parent, traceparent
from tests.until import LIMIT
from towline import INJECTED, Context, Next, Towline
from towline.otel import FollowLinks, instrument
from towline.testing import drain


def drained(app: Towline) -> None:
    drain(app, raising=False)


@pytest.mark.parametrize("relation", ["link", "child"])
def test_T3_each_try_is_linked_to_the_same_creation_or_below_it(
    app: Towline, collected: Collected, relation: Any
) -> None:
    collected.instrument(app, relation=relation)

    @app.task(max_attempts=3, backoff=lambda _: 0)
    def fails() -> None:
        raise ValueError

    fails.enqueue()
    with app.worker():
        tries = collected.wait_for("run fails", 3)
    stored = collected.span("enqueue fails")
    if relation == "child":
        assert [parent(span) for span in tries] == [ids(stored)] * 3
        assert not any(span.links for span in tries)
    else:
        assert [links(span) for span in tries] == [[ids(stored)]] * 3
        assert not any(parent(span) for span in tries)
        assert len({ids(span)[0] for span in (stored, *tries)}) == 4  # traces


def test_T3_a_function_says_which(app: Towline, collected: Collected) -> None:
    asked: list[Any] = []

    def relate(task: str, queue: str, attempt: int, position: int, waited: float) -> Any:
        asked.append((task, queue, attempt, position))
        assert waited >= 0
        if task == "broken":
            raise RuntimeError("no")
        return "child" if task == "near" else "link"

    collected.instrument(app, relation=relate)

    @app.task(queue="q")
    def near() -> None: ...

    @app.task
    def far() -> None: ...

    @app.task
    def broken() -> None: ...

    for task in (near, far, broken):
        task.enqueue()
    drained(app)
    assert parent(collected.span("run near")) == ids(collected.span("enqueue near"))
    assert links(collected.span("run far")) == [ids(collected.span("enqueue far"))]
    assert links(collected.span("run broken")) == [ids(collected.span("enqueue broken"))]
    assert asked[0] == ("near", "q", 1, 0)


def test_T3_a_chain_is_one_trace_cut_at_every_hundredth(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def step(number: int, ctx: Context = INJECTED) -> int | Next[int]:
        return number if number == 101 else step.then(number + 1)

    step.enqueue(0)
    drained(app)
    runs = {attributes(span)["towline.position"]: span for span in collected.spans("run step")}
    assert len(runs) == 102
    for position in range(1, 102):
        before = ids(runs[position - 1])
        if position == 100:
            assert (parent(runs[position]), links(runs[position])) == (None, [before])
        else:
            assert (parent(runs[position]), links(runs[position])) == (before, [])
    assert len({ids(span)[0] for span in runs.values()}) == 2
    assert links(runs[0]) == [ids(collected.span("enqueue step"))]


def test_T3_a_failed_try_of_a_continuation_stays_in_the_trace(
    app: Towline, collected: Collected
) -> None:
    collected.instrument(app)

    @app.task
    def first() -> Next[None]:
        return second.then()

    @app.task(max_attempts=2, backoff=lambda _: 0)
    def second(ctx: Context = INJECTED) -> None:
        if ctx.attempt == 1:
            raise ValueError

    first.enqueue()
    with app.worker():
        tries = collected.wait_for("run second", 2)
    assert [parent(span) for span in tries] == [ids(collected.span("run first"))] * 2


def test_T3_what_an_attempt_stores_is_its_own(app: Towline, collected: Collected) -> None:
    """Enqueues of a handler, and the jobs that a fan-out brings along."""
    collected.instrument(app, relation="child")

    @app.task
    def part(number: int) -> int:
        return number

    @app.task
    def other() -> None: ...

    @app.task
    def merge(ctx: Context = INJECTED) -> int:
        return sum(ctx.blockers)

    @app.task
    def split() -> Next[int]:
        other.enqueue()
        return merge.using(after=[part.call(1), part.call(2)]).then()

    job = split.enqueue()
    with app.worker():
        assert job.result(LIMIT) == 3
        (merged,) = collected.wait_for("run merge")
        collected.wait_for("run other")
    ran = collected.span("run split")
    assert parent(collected.span("enqueue other")) == ids(ran)
    assert [parent(span) for span in collected.spans("run part")] == [ids(ran)] * 2
    assert parent(merged) == ids(ran)
    assert attributes(merged)["towline.blockers"] == 2
    assert links(merged) == []  # its blockers were created by the same


def test_T3_links_to_blockers_32_at_most(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def part() -> None: ...

    @app.task
    def whole() -> None: ...

    few = [part.enqueue() for _ in range(2)]
    whole.using(after=few, label="few").enqueue()
    many = [part.enqueue() for _ in range(40)]
    whole.using(after=many).enqueue()
    drained(app)
    stored = collected.spans("enqueue part")
    first, second = collected.spans("run whole")
    creations = collected.spans("enqueue whole")
    assert links(first) == [ids(creations[0]), *map(ids, stored[:2])]
    assert links(second) == [ids(creations[1]), *map(ids, stored[2:34])]
    assert attributes(second)["towline.blockers"] == 40


def test_T3_from_outside_a_continuation_is_the_callers(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def waits() -> int:
        return 1

    @app.task
    def follows() -> int:
        return 2

    @app.task(cron="0 0 1 1 *")
    def yearly() -> None: ...

    job = waits.using(delay=3600).enqueue()
    app.set_schedule("yearly by hand", yearly.call(), "0 0 1 1 *")
    with collected.tracer.start_as_current_span("webhook") as webhook:
        app.complete(job.id, follows.then())
        ticked = app.schedule("yearly by hand").run()
    here = webhook.get_span_context()
    assert ticked.trace is not None
    assert f"{here.span_id:016x}" in ticked.trace
    drained(app)
    assert parent(collected.span("run follows")) == (here.trace_id, here.span_id)
    assert links(collected.span("run yearly")) == [(here.trace_id, here.span_id)]


def test_a_trace_that_the_caller_gives_is_kept(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def one() -> None: ...

    given = f"00-{7:032x}-{9:016x}-01"
    assert one.using(trace=given).enqueue().trace == given
    drained(app)
    assert links(collected.span("run one")) == [(7, 9)]


def test_FollowLinks_keeps_what_its_link_kept(app: Towline) -> None:
    sampler = FollowLinks(ALWAYS_OFF)
    assert sampler.get_description() == "FollowLinks(AlwaysOffSampler)"
    with Collected(sampler) as collected:
        collected.instrument(app)

        @app.task
        def one() -> None:
            with collected.tracer.start_as_current_span("inside"):
                pass

        kept, dropped = f"00-{7:032x}-{9:016x}-01", f"00-{8:032x}-{9:016x}-00"
        one.using(trace=kept).enqueue()
        one.using(trace=dropped).enqueue()
        drained(app)
        (ran,), (inside,) = collected.spans("run one"), collected.spans("inside")
        assert links(ran) == [(7, 9)]
        assert parent(inside) == ids(ran)
        assert collected.spans("enqueue one") == []
    with Collected(FollowLinks(ALWAYS_ON)) as collected:
        with collected.tracer.start_as_current_span("root"):
            assert get_current_span().is_recording()


def test_what_is_not_sampled_still_hangs_together(app: Towline) -> None:
    """A chain whose first attempt was dropped is dropped as a whole."""
    with Collected(ALWAYS_OFF) as collected:
        collected.instrument(app)
        seen: list[SpanContext] = []

        @app.task
        def first() -> Next[None]:
            seen.append(get_current_span().get_span_context())
            return second.then()

        @app.task
        def second(ctx: Context = INJECTED) -> None:
            seen.append(get_current_span().get_span_context())
            assert ctx.trace is not None

        job = first.enqueue()
        with app.worker():
            job.result(LIMIT)
        assert collected.spans() == []
        assert seen[0].is_valid
        assert seen[0].trace_id == seen[1].trace_id
        assert not seen[1].trace_flags & TraceFlags.SAMPLED


def test_without_spans_of_its_own_a_process_passes_the_context_on(
    app: Towline, collected: Collected
) -> None:
    """The API alone, as a library's user has it, and a context that came from elsewhere."""
    instrument(app)

    @app.task
    def one() -> None: ...

    assert one.enqueue().trace is None
    with collected.tracer.start_as_current_span("request") as request:
        job = one.enqueue()
    assert job.trace is not None
    assert f"{request.get_span_context().span_id:016x}" in job.trace
    with app.worker():
        job.result(LIMIT)


def test_spans_name_each_other_as_stored(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def one(ctx: Context = INJECTED) -> str | None:
        return ctx.trace

    job = one.enqueue()
    with app.worker():
        assert job.result(LIMIT) == traceparent(collected.span("enqueue one"))
