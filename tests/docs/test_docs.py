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
_ROW = re.compile(r"^\| `([A-Z_]+)` \| (?:`([^`]*)`|unset|未设置) \| .+ \|$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


def table(name: str) -> dict[str, str]:
    """The settings that a page lists, with their defaults."""
    rows = _ROW.findall((ROOT / name).read_text(encoding="utf-8"))
    assert len({setting for setting, _ in rows}) == len(rows)
    return dict(rows)


def written(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:%H:%M}" if isinstance(default, time) else str(default)


@pytest.mark.parametrize("name", TABLES)
def test_every_setting_is_listed_with_its_default(name: str) -> None:
    expected = {field.upper(): written(info.default) for field, info in _Variables.model_fields.items()}
    assert table(name) == expected


def test_every_kind_of_error_is_explained() -> None:
    page = (ROOT / "docs/problems.md").read_text(encoding="utf-8")
    kinds = {
        kind.slug: kind.status
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.TemporalMemoryError)
        and not issubclass(kind, errors.StartupError | errors.DumpError)
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
