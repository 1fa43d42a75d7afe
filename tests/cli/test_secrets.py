"""X12: what is marked as secret is shown by no command, and stands in no log."""

from __future__ import annotations

import pytest

from tests.cli.shop import Shop

WORD = "opensesame"
VAULT = """
from typing import Annotated
from towline import Secret, Towline

app = Towline("sqlite:///vault.db", secret_names=["*pin*"])

@app.task(max_attempts=1)
def unlock(code: Annotated[str, Secret], my_pin: str, door: int = 1) -> Annotated[str, Secret]:
    if door == 13:
        raise LookupError(f"no door for {code}", {"pin": my_pin, "code": [code]})
    return code
"""


@pytest.fixture
def vault(shop: Shop) -> Shop:
    (shop.folder / "vault.py").write_text(VAULT)
    shop.run("migrate", "vault:app")
    return shop


def test_X12_no_command_and_no_log_shows_a_secret(vault: Shop) -> None:
    given = ("-p", f"code={WORD}", "-p", f"my_pin={WORD}")
    for door in ("1", "13"):
        vault.run("enqueue", "vault:app", "unlock", *given, "-p", f"door={door}")
    told = [vault.run("worker", "vault:app", "--drain", "--log-level", "debug", "--json-logs")]
    for words in (
        ("job", "vault:app", "1"),
        ("job", "vault:app", "2"),
        ("chain", "vault:app", "1"),
        ("chain", "vault:app", "1", "--tree"),
        ("jobs", "vault:app"),
        ("group", "vault:app", "2"),
        ("errors", "vault:app"),
        ("tasks", "vault:app"),
        ("stats", "vault:app"),
    ):
        told += [vault.run(*words), vault.run(*words, "--json")]
    for id in ("1", "2"):
        told.append(vault.run("job", "vault:app", id, "--follow", code=int(id) - 1))
    assert [done.args for done in told if WORD in done.stdout + done.stderr] == []
    assert all("no door for ***" in done.stdout + done.stderr for done in (told[0], told[3]))
    shown = vault.data("job", "vault:app", "1")
    assert shown["arguments"] == {"code": "***", "my_pin": "***", "door": 1}
    assert shown["output"] == "***"


def test_X12_an_output_that_is_waited_for_is_hidden(vault: Shop) -> None:
    worker = vault.start("worker", "vault:app")
    given = ("-p", f"code={WORD}", "-p", f"my_pin={WORD}", "--wait")
    assert vault.text("enqueue", "vault:app", "unlock", *given).split()[-1] == '"***"'
    assert vault.data("enqueue", "vault:app", "unlock", *given)["chain"]["output"] == "***"
    worker.process.terminate()


def test_X12_an_error_that_is_waited_for_is_told_without_it(vault: Shop) -> None:
    worker = vault.start("worker", "vault:app")
    given = ("-p", f"code={WORD}", "-p", f"my_pin={WORD}", "-p", "door=13", "--wait")
    done = vault.run("enqueue", "vault:app", "unlock", *given, code=1)
    assert "LookupError: ('no door for ***'" in done.stderr
    assert WORD not in done.stdout + done.stderr
    done = vault.run("enqueue", "vault:app", "unlock", *given, "--json", code=1)
    assert WORD not in done.stdout + done.stderr
    worker.process.terminate()
