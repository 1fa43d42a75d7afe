"""Which app, wrong usage, and what each exit code stands for."""

from __future__ import annotations

import socket
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shop import APP, ROOT, Shop
from towline.cli.commands import SECTIONS, group
from towline.cli.target import find_app
from towline.doctor import check
from towline.exit_codes import MEANING
from towline.migrate import Migrations

COMMANDS = [command.name or "" for commands in SECTIONS.values() for command in commands]


def test_the_ways_to_name_the_app(shop: Shop) -> None:
    """By word, by option, by variable; or only its database."""
    shop.put("add", a=1, b=1)
    for words, env in (
        ((APP,), {}),
        (("--app", APP), {}),
        (("--url", shop.url), {}),
        ((), {"TOWLINE_APP": APP}),
        ((), {"TOWLINE_URL": shop.url}),
    ):
        assert "add" in shop.run("jobs", *words, env=env).stdout


def test_a_database_of_the_usual_name_is_found(shop: Shop) -> None:
    """As Towline() without a URL."""
    assert "MODULE:APP" in shop.refused("stats", code=2)
    shop.run("migrate", "--url", "sqlite:///towline.db")
    assert "no jobs yet" in shop.text("stats")


def test_a_prefix_belongs_to_a_url(shop: Shop) -> None:
    """M5"""
    shop.run("migrate", "--url", shop.url, "--prefix", "mine_")
    shop.put("add", a=1, b=1)
    assert shop.data("jobs", "--url", shop.url, "--prefix", "mine_")["jobs"] == []
    assert "--url" in shop.refused("jobs", APP, "--prefix", "mine_", code=2)
    assert "prefix" in shop.refused("jobs", "--url", shop.url, "--prefix", "a b", code=2)


def test_an_app_that_cannot_be_found(shop: Shop) -> None:
    """Exit code 2, and what to do."""
    (shop.folder / "broken.py").write_text("x = 1\nimport not_installed_anywhere\n")
    (shop.folder / "wrong.py").write_text("this is no Python\n")
    for name, words in {
        "shop:nothing": ("is a int, no Towline app", "shop:app"),
        "shop:other": ("is not there", "shop:app"),
        "shops:app": ("no module shops",),
        "shop.py:app": ("leave .py away",),
        "broken:app": ("not_installed_anywhere", "broken.py, line 2"),
        "wrong:app": ("SyntaxError",),
    }.items():
        line = shop.refused("stats", name, code=2)
        for word in words:
            assert word in line
    assert "not both" in shop.refused("stats", "--app", APP, "--url", shop.url, code=2)


def test_wrong_usage(shop: Shop) -> None:
    """Exit code 2, one line, and where help is."""
    for words in (
        ("nonsense",),
        ("jobs", APP, "--nonsense"),
        ("jobs", APP, "nonsense"),
        ("jobs", APP, "--state", "asleep"),
        ("jobs", APP, "--limit", "many"),
        ("jobs", APP, "--since", "yesterday"),
        ("job", APP),
        ("job", APP, "1", "2"),
        ("complete", APP, "1"),
    ):
        assert "--help" in shop.refused(*words, code=2)
    assert "limit" in shop.refused("jobs", APP, "--limit", "0", code=2)
    assert "cursor" in shop.refused("jobs", APP, "--cursor", "x", code=2)
    assert "mysql" in shop.refused("jobs", "--url", "mysql://x", code=2)


def test_an_unknown_id(any_shop: Shop) -> None:
    """Exit code 1"""
    assert any_shop.refused("job", APP, "99", code=1) == "towline: there is no job 99"
    assert any_shop.refused("chain", APP, "99", code=1) == "towline: there is no chain 99"
    for command in ("run", "retry", "cancel"):
        assert "no job 99" in any_shop.run(command, APP, "99", code=1).stderr


def test_a_database_that_cannot_be_used(shop: Shop) -> None:
    """Exit code 4"""
    (shop.folder / "text.db").write_text("this is no database, and was never meant to be one")
    with socket.socket() as taken:  # a port where nobody answers
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        shop.refused("jobs", "--url", f"postgresql://x@127.0.0.1:{port}/x", code=4)
    shop.refused("jobs", "--url", f"sqlite:///{shop.folder}/text.db", code=4)
    line = shop.refused("jobs", "--url", shop.url, "--prefix", "other_", code=4)
    assert "towline migrate" in line


def test_help(shop: Shop) -> None:
    """Every command has one, and the exit codes are told."""
    text = shop.text("--help")
    for code, meaning in MEANING.items():
        assert f"{code}  {meaning}" in text
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "--grace" in shop.text("worker", "-h")
    assert "[MODULE:APP] ID" in shop.text("job", "--help")
    assert shop.text("--version").startswith("towline ")


def test_every_command_is_documented() -> None:
    """In docs/reference/command-line.md, with every option and every exit code."""
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    missing = [f"towline {name}" for name in COMMANDS if f"towline {name}" not in page]
    for name, command in group.commands.items():
        for parameter in command.params:
            for option in parameter.opts:
                hidden = getattr(parameter, "hidden", False)
                if option.startswith("--") and not hidden and f"`{option}" not in page:
                    missing.append(f"{name} {option}")
    missing += [f"exit code {code}" for code in MEANING if f"| {code} |" not in page]
    assert not missing


def test_the_script_is_the_module() -> None:
    """`towline` and `python -m towline` are the same."""
    project = tomllib.loads(Path(ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"] == {"towline": "towline.cli:main"}
    assert "from .cli import main" in (ROOT / "towline" / "__main__.py").read_text()


def test_A26_looking_leaves_another_applications_file_as_it_is(shop: Shop) -> None:
    """Finding A26: a mistyped --url turns no file of somebody else to WAL."""
    path = shop.folder / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    for words in (("jobs",), ("stats",), ("job", "1"), ("prune",)):
        line = shop.refused(*words, "--url", f"sqlite:///{path}", code=4)
        assert "no Towline tables" in line
    shop.run("doctor", "--url", f"sqlite:///{path}", code=1)
    assert path.read_bytes() == before


def test_a_command_looks_at_the_schema_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    judge = Migrations.judge

    def counted(self: Migrations, applied: set[str] | None) -> None:
        looks.append(applied)
        judge(self, applied)

    monkeypatch.setattr(Migrations, "judge", counted)
    app = find_app(None, shop.url, None, None)
    check(app)
    app.jobs()
    app.counts()
    app.close()
    assert len(looks) == 1
