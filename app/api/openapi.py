"""Writes the OpenAPI document and the table of problems, or checks that what is written is still true.

`python -m app.api.openapi [--check] openapi/openapi.json`: no database and no model are opened.
"""

import argparse
import json
import sys
from pathlib import Path

from app.api.application import build_api
from app.api.context import ApiOptions
from app.api.problem_types import render_problem_types

_PROBLEMS_PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def render_openapi() -> str:
    """The text of openapi/openapi.json: the same whatever the settings are."""
    return json.dumps(build_api(ApiOptions()).openapi(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check; returns the exit status: 1 where a checked file is not what it should be."""
    parser = argparse.ArgumentParser(prog="python -m app.api.openapi", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 where a file is out of date"
    )
    options = parser.parse_args(arguments)
    stale = []
    for path, content in ((options.path, render_openapi()), (_PROBLEMS_PAGE, render_problem_types())):
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        if options.check:
            stale.append(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    for path in stale:
        sys.stderr.write(f"{path} is out of date: run make openapi\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
