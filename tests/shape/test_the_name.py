"""The project has one name. An older one belongs to another package: nobody may be sent there."""

from tests.shape.source import ROOT, complain

OLD = "wind" + "lass"
FOLDERS = ("towline", "tests", "bench", "docs", "deploy", "design", "examples", ".ci")
MAY_SAY_IT = {"CHANGELOG.md", "changelog.md"}


def test_nothing_says_the_old_name_but_the_changelog() -> None:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += (ROOT / folder).rglob("*")
    complain(
        [
            f"{path.relative_to(ROOT)} says {OLD}"
            for path in files
            if path.is_file() and "__pycache__" not in path.parts and path.name not in MAY_SAY_IT
            if OLD in str(path).lower().removeprefix(str(ROOT).lower())
            or OLD in path.read_text(errors="ignore").lower()
        ]
    )
