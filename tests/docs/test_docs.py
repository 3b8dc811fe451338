"""The documents name what there is: settings and their defaults, problems, files, the version."""

import re
import tomllib
from datetime import time
from pathlib import Path
from typing import Any

import pytest

from app import errors
from app.settings import _Variables

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TABLES = ("README.md", "README.zh-CN.md", "docs/settings.md")
_ROW = re.compile(r"^\| `([A-Z_]+)`( †)? \| (?:`([^`]*)`|unset|未设置) \| .+ \|$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


def table(name: str) -> dict[str, tuple[str, bool]]:
    """The settings that a page lists: name -> (default, whether the next release is the first to read it)."""
    rows = _ROW.findall((ROOT / name).read_text(encoding="utf-8"))
    assert len({setting for setting, _, _ in rows}) == len(rows)
    return {setting: (default, bool(mark)) for setting, mark, default in rows}


def written(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:%H:%M}" if isinstance(default, time) else str(default)


@pytest.mark.parametrize("name", TABLES)
def test_every_setting_is_listed_with_its_default(name: str) -> None:
    expected = {field.upper(): written(info.default) for field, info in _Variables.model_fields.items()}
    assert {setting: default for setting, (default, _) in table(name).items()} == expected


def test_the_tables_agree_on_what_is_not_read_yet() -> None:
    marks = [{setting for setting, (_, mark) in table(name).items() if mark} for name in TABLES]
    assert marks[0]
    assert marks[0] == marks[1] == marks[2]


def test_what_is_said_not_to_be_read_is_not_read() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "app").rglob("*.py")
        if path.name != "settings.py"
    ]
    sections = {
        "CHAT": "chat",
        "EVALUATION": "evaluation",
        "FORGET": "forgetting",
        "SUMMARY": "tiers.summary",
        "RAG": "recall.enabled",
    }
    marked = {setting.partition("_")[0] for setting, (_, mark) in table("docs/settings.md").items() if mark}
    assert marked == set(sections)
    read = [
        section
        for section in sections.values()
        if any(re.search(rf"settings\.{section}", text) for text in sources)
    ]
    assert not read


def test_every_kind_of_error_is_explained() -> None:
    page = (ROOT / "docs/problems.md").read_text(encoding="utf-8")
    kinds = {
        kind.slug: kind.status
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.TemporalMemoryError)
        and not issubclass(kind, errors.StartupError)
    }
    assert len(kinds) > 10
    for slug, status in kinds.items():
        assert f"## /problems/{slug}\n\n{status}: " in page


def test_the_changelog_has_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()
    ]
    assert not broken


def test_decisions_are_numbered_and_dated() -> None:
    records = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [record.name[:4] for record in records] == [
        f"{number:04}" for number in range(1, len(records) + 1)
    ]
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert text.startswith(f"# {record.name[:4]}: ")
        assert re.search(r"^20\d\d-\d\d-\d\d, (accepted|superseded by \d{4})\.", text, re.MULTILINE)


def test_files_named_in_pages_exist() -> None:
    missing = []
    for page in PAGES:
        named = re.findall(
            r"`((?:app|docs|tests|benchmarks|alembic|openapi)/[\w/.-]+)`", page.read_text(encoding="utf-8")
        )
        missing += [f"{page.name}: {path}" for path in named if not (ROOT / path).exists()]
    assert not missing
