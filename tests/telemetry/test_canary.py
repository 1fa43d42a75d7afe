"""T9: what people store is found in no span, no metric, no line of ours."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.telemetry.collected import Collected
from tests.until import LIMIT
from towline import INJECTED, Cancel, Context, Fail, Job, Next, Towline
from towline.errors import TowlineError
from towline.testing import drain

WORD = "canary-4711"


def test_T9_the_canary_is_found_nowhere(
    app: Towline, collected: Collected, caplog: pytest.LogCaptureFixture
) -> None:
    collected.instrument(app, baggage=("tenant",), cluster=True)

    class Canary(Exception):
        def __str__(self) -> str:
            return WORD

    @app.task(max_attempts=2, backoff=lambda _: 0)
    def fails(word: str, ctx: Context = INJECTED) -> None:
        ctx.progress(0.5, word)
        raise Canary(word)

    @app.task
    def ends(word: str, how: str) -> str | Next[str]:
        if how == "fail":
            raise Fail(word)
        if how == "cancel":
            raise Cancel(word)
        return ends.then(word, "") if how == "continue" else word

    with caplog.at_level(logging.DEBUG, "towline"):
        with app.worker():
            marked = fails.using(key=WORD, label=WORD, lane=WORD)
            jobs: list[Job[Any]] = [marked.enqueue(WORD), marked.enqueue(WORD)]
            hows = ("fail", "cancel", "continue", "", "after")
            jobs += [ends.using(label=WORD).enqueue(WORD, how) for how in hows]
            jobs.append(ends.using(after={WORD: jobs[-1]}).enqueue(WORD, "x"))
            for job in jobs:
                try:
                    job.result(LIMIT)
                except TowlineError:
                    pass
            collected.wait_for("run ends", 6)
        with pytest.raises(TowlineError):
            fails.using(key=WORD, on_conflict="raise", scope="any").enqueue(WORD)
        app.cancel(ends.using(delay=60).enqueue(WORD, "x").id, reason=WORD)
        drain(app, raising=False)
        text = collected.text()
    assert "run fails" in text
    assert WORD not in text
    lines = [str(record.__dict__) for record in caplog.records if record.name.startswith("towline")]
    assert lines
    assert not [line for line in lines if WORD in line]
