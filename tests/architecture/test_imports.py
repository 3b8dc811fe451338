"""What import-linter does not see: that its list is whole, and what importing a module does."""

import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("access", "chat", "recall", "tiers", "dialogues", "evaluation", "forgetting")
# Whoever talks to PostgreSQL or to another machine is called so; everything else in a room is arithmetic.
DOES_IO = (
    "store",
    "service",
    "rows",
    "embedding",
    "reembedding",
    "composer",
    "worker",
    "evaluator",
    "erasure",
    "sweep",
    "retrievals",
    "correcting",
)

# Watches for a file opened for writing, a socket, a process, a thread, a read of the environment.
IMPORT_EVERYTHING = """
import importlib, json, os, sys, threading

seen = []


def watch(event, arguments):
    if event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn", "os.fork"):
        seen.append(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        seen.append(f"open {arguments[0]} {arguments[1]}")


sys.addaudithook(watch)


class Watched(type(os.environ)):
    def __getitem__(self, name):
        caller = sys._getframe(1)
        while caller and not caller.f_globals.get("__name__", "").startswith("app"):
            if not caller.f_globals.get("__name__", "").startswith(("os", "collections", "_collections_abc")):
                return super().__getitem__(name)
            caller = caller.f_back
        if caller:
            seen.append(f"environment: {name} read by {caller.f_globals['__name__']}")
        return super().__getitem__(name)


os.environ.__class__ = Watched
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
from app.settings import Settings

for name, module in list(sys.modules.items()):
    if name == "app" or name.startswith("app."):
        kept = [key for key, value in vars(module).items() if isinstance(value, Settings)]
        seen += [f"settings: {name}.{key}" for key in kept]
if threading.active_count() > 1:
    seen.append("a thread")
print(json.dumps(seen))
"""


def all_modules() -> list[str]:
    return [
        module.name
        for module in pkgutil.walk_packages([str(ROOT / "app")], prefix="app.")
        if not module.name.endswith("__main__")
    ]


def import_linter() -> dict[str, dict[str, list[str]]]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["name"]: contract for contract in config["tool"]["importlinter"]["contracts"]}


def test_every_module_of_a_room_is_pure_or_named_for_its_io() -> None:
    listed = set(
        import_linter()["What is arithmetic knows no database, no network, no framework, no settings"][
            "source_modules"
        ]
    )
    unplaced = []
    for name in all_modules():
        _, room, *rest = name.split(".")
        if room in ROOMS and rest and rest[-1].rpartition("_")[2] not in DOES_IO and name not in listed:
            unplaced.append(name)
    assert not unplaced, f"enter into the purity contract in pyproject.toml: {unplaced}"


@pytest.mark.parametrize(
    "rule",
    ["HTTP's framework stays in api", "Who is not the composition root is handed plain values, not settings"],
)
def test_every_room_is_under_the_rules(rule: str) -> None:
    below_api = {module.name for module in pkgutil.iter_modules([str(ROOT / "app")])} - {
        "main",
        "cli",
        "commands",
        "temporal_memory",
        "api",
        "gateways",
        "services",
        "models",
        "settings",
        "errors",
        "clock",
    }
    assert below_api <= {name.removeprefix("app.") for name in import_linter()[rule]["source_modules"]}


def test_importing_every_module_opens_nothing_and_reads_no_environment(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", IMPORT_EVERYTHING, json.dumps(all_modules())],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []
    assert list(tmp_path.iterdir()) == []
