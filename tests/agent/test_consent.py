"""A3: a person is asked before many jobs are changed, where the client can ask one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as mcp
import pytest

from tests.agent.client import MODES, Elicit
from tests.agent.conftest import Visit
from towline import Towline

FILTER = {"task": "add"}
Answers = Callable[[str, bool | None], Elicit]


@pytest.fixture
def asked() -> list[str]:
    """What a person was asked."""
    return []


@pytest.fixture
def answers(asked: list[str]) -> Answers:
    def make(action: Any, confirm: bool | None) -> Elicit:
        async def answer(_: Any, params: Any) -> mcp.ElicitResult:
            asked.append(params.message)
            content: Any = None if confirm is None else {"confirm": confirm}
            return mcp.ElicitResult(action=action, content=content)

        return answer

    return make


@pytest.fixture
def jobs(app: Towline) -> list[int]:
    return [app.registry["add"].enqueue(n).id for n in range(3)]


@pytest.mark.parametrize("mode", MODES)
def test_A3_a_person_who_agrees_is_asked_once(
    visit: Visit, app: Towline, jobs: list[int], answers: Answers, asked: list[str], mode: str
) -> None:
    visitor = visit(mode, answers=answers("accept", True))
    token = visitor.get("cancel_jobs", filter=FILTER)["confirm"]
    assert asked == []
    assert visitor.get("cancel_jobs", filter=FILTER, confirm=token) == {"changed": 3}
    assert asked == ["mcp:tester wants to cancel 3 jobs: 3, 2, 1"]
    assert len(app.jobs(state="cancelled")) == 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("action", "confirm"),
    [("accept", False), ("accept", None), ("decline", None), ("cancel", None)],
)
def test_A3_without_a_yes_nothing_is_done_and_the_token_is_over(
    visit: Visit, app: Towline, jobs: list[int], answers: Answers, asked: list[str],
    mode: str, action: str, confirm: bool | None,
) -> None:  # fmt: skip
    visitor = visit(mode, answers=answers(action, confirm))
    token = visitor.get("cancel_jobs", filter=FILTER)["confirm"]
    text = visitor.refusal("cancel_jobs", filter=FILTER, confirm=token)
    assert "did not agree" in text
    assert "is used" in visitor.refusal("cancel_jobs", filter=FILTER, confirm=token)
    assert len(asked) == 1
    assert len(app.jobs(state="pending")) == 3


@pytest.mark.parametrize("mode", MODES)
def test_A3_a_client_that_cannot_ask_relies_on_the_token(
    visit: Visit, jobs: list[int], mode: str
) -> None:
    visitor = visit(mode)
    token = visitor.get("cancel_jobs", filter=FILTER)["confirm"]
    assert visitor.get("cancel_jobs", filter=FILTER, confirm=token) == {"changed": 3}


@pytest.mark.parametrize("mode", MODES)
def test_A3_nobody_is_asked_about_a_token_that_is_wrong(
    visit: Visit, jobs: list[int], answers: Answers, asked: list[str], mode: str
) -> None:
    visitor = visit(mode, answers=answers("accept", True))
    assert "another call" in visitor.refusal("cancel_jobs", filter=FILTER, confirm="guessed")
    assert asked == []
