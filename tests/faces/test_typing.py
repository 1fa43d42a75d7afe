"""E7: a type checker flags a wrong call before it runs, with mypy strict and with pyright."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faces import typing_report
from tests.faces.typing_report import Said


@pytest.mark.parametrize("checker", [typing_report.mypy, typing_report.pyright])
def test_E7_type_checkers_see_what_is_wrong_and_nothing_else(checker: Callable[[], Said]) -> None:
    """Every marked line is rejected, no other; what is accepted has the types it says."""
    wrong, said = typing_report.marked(), checker()
    assert len(wrong) > 200
    assert {line: text for line, text in wrong.items() if line not in said} == {}, "not seen"
    assert {line: text for line, text in said.items() if line not in wrong} == {}, "seen in vain"
