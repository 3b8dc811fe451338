"""`.ci/run` and the Makefile, as a fresh clone meets them."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci/run"


def make_python(folder: Path, name: str, *, version: tuple[int, int]) -> None:
    """An interpreter that says that it has this version, and does nothing else."""
    folder.mkdir(exist_ok=True)
    fake = folder / name
    fake.write_text(
        f'#!/bin/sh\ncase "$2" in *"version_info < (3, 11)"*) exit {int(version < (3, 11))};; esac\nexit 1\n',
        encoding="utf-8",
    )
    fake.chmod(0o755)


def make_make(folder: Path) -> None:
    """A `make` that prints what it was called with."""
    fake = folder / "make"
    fake.write_text('#!/bin/sh\necho "make $*"\n', encoding="utf-8")
    fake.chmod(0o755)


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    for tool in ("bash", "dirname"):
        (folder / tool).symlink_to(
            next(p for d in os.defpath.split(":") if (p := Path(d or "/bin") / tool).exists())
        )
    return subprocess.run(
        [str(folder / "bash"), str(SCRIPT)],
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_is_executable_and_names_no_host() -> None:
    assert os.access(SCRIPT, os.X_OK)
    assert "://" not in SCRIPT.read_text(encoding="utf-8")


def test_it_checks_and_tests_with_the_first_python_that_is_new_enough(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    make_python(folder, "python3.12", version=(3, 10))
    make_python(folder, "python3", version=(3, 11))
    make_make(folder)
    ran = run(folder)
    assert ran.stdout.splitlines() == ["make check PYTHON=python3", "make test PYTHON=python3"], ran.stderr


def test_it_takes_the_python_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    make_python(folder, "python3", version=(3, 12))
    make_python(folder, "mine", version=(3, 13))
    make_make(folder)
    ran = run(folder, CI_PYTHON=str(folder / "mine"))
    assert ran.stdout.splitlines()[0] == f"make check PYTHON={folder}/mine", ran.stderr


def test_without_python_it_says_what_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    make_python(folder, "python3", version=(3, 9))
    make_make(folder)
    ran = run(folder)
    assert ran.returncode != 0
    assert ran.stdout == ""
    assert "Python >= 3.11" in ran.stderr


def test_make_needs_no_index_url_and_no_root() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"://|\bsudo\b|--index", makefile)
