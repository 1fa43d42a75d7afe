"""change, rerun, prune by age."""

from __future__ import annotations

from tests.cli.shop import APP, Shop
from towline.exit_codes import USAGE


def test_change_and_rerun(any_shop: Shop) -> None:
    (id,) = (int(any_shop.text("enqueue", APP, "say", "-p", "text=x", "--delay", "2h")),)
    said = ("--priority", "7", "--queue", "mail", "--label", "note", "--delay", "1h")
    (job,) = any_shop.data("change", APP, str(id), *said)["jobs"]
    assert (job["priority"], job["queue"], job["label"], job["state"]) == (
        7, "mail", "note", "scheduled",
    )  # fmt: skip
    any_shop.text("complete", APP, str(id), '"done"')
    answer = any_shop.run("change", APP, str(id), "--priority", "1", code=1)
    assert "only an open job that does not run can be changed" in answer.stderr
    (again,) = any_shop.data("rerun", APP, str(id))["jobs"]
    assert again["id"] > id
    assert (again["state"], again["label"]) == ("pending", "note")


def test_a_change_says_what_to_change(shop: Shop) -> None:
    id = str(shop.put("say", text="x"))
    assert "say what to change: --priority, --delay" in shop.refused("change", APP, id, code=USAGE)


def test_prune_by_age_and_state(any_shop: Shop) -> None:
    id = any_shop.text("enqueue", APP, "say", "-p", "text=x").strip()
    any_shop.text("complete", APP, id, '"done"')
    chosen = ("--older-than", "0", "--state", "completed")
    assert any_shop.data("prune", APP, *chosen, "--preview") == {"chains": 1, "preview": True}
    assert any_shop.data("prune", APP, "--older-than", "0", "--state", "failed") == {"chains": 0}
    assert any_shop.data("prune", APP, *chosen) == {"chains": 1}
