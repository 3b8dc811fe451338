"""What the two READMEs say, tried: their commands run as they stand, and both say the same."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.cli import cli
from tests.live import eventually
from tests.talk import chat_settings, read_events

if TYPE_CHECKING:
    from tests.conftest import LiveFactory, LiveService
    from tests.doubles.chat_fixtures import ChatProvider

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh-CN.md")
ADDRESS = "http://127.0.0.1:8000"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROUTE = re.compile(r"`(GET|POST|PATCH|DELETE) (/[^`]*)`")

both = pytest.mark.parametrize("name", READMES)


def blocks(name: str, *languages: str) -> list[tuple[str, str]]:
    """The fenced blocks of a README in these languages: (language, text)."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return [(language, block) for language, block in _BLOCK.findall(text) if language in languages]


async def run(*command: str, cwd: Path) -> str:
    # The readers' machine, not ours: no proxy, no setting, nothing but a path.
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LANG": "C.UTF-8"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def no_turn_waits(live: "LiveService") -> bool:
    return not (await live.client.get("/stats")).json()["turns"]["pending"]


def shown(block: str) -> str:
    """A pattern of what a `text` block shows; … stands for what is another each time."""
    return re.escape(block.strip()).replace("…", ".+?")


async def take_walk(name: str, live: "LiveService", folder: Path) -> list[str]:
    """Run every `bash` and `python` block in its order; a `text` block is what the one before it printed."""
    walk = blocks(name, "bash", "python", "text")
    # The first block shows what memory lines are like, before there is a service.
    assert walk[0][0] == "text"
    printed = ""
    answers = []
    for language, block in walk[1:]:
        source = block.replace(ADDRESS, live.url)
        if language == "text":
            assert re.fullmatch(shown(block), printed.strip())
            continue
        assert source != block, "a block of the walk asks the service"
        # Who reads on is slower than the judgement of a turn.
        await eventually(lambda: no_turn_waits(live))
        if language == "python":
            printed = await run(sys.executable, "-c", source, cwd=folder)
        else:
            # -f: an answer of 400 and above ends the walk here, where a reader would see it.
            script = source.replace("curl -s", "curl -sf -w '\\n'")
            printed = await run("bash", "-euo", "pipefail", "-c", script, cwd=folder)
        answers.append(printed)
    return answers


@both
async def test_the_walk_does_what_it_shows(
    name: str, serve: "LiveFactory", chat_provider: "ChatProvider", tmp_path: Path
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        answers = await take_walk(name, live, tmp_path)
    stored, batch, _, prompt, around, chat, spoken, turn, upkeep = answers
    assert json.loads(stored)["content"] in blocks(name, "text")[0][1]
    assert json.loads(batch)["stored"] == 3
    assert prompt.startswith("system : ")
    assert "user : " in prompt
    _, _, session, user = map(json.loads, around.strip().splitlines())
    assert session["erased"]["dialogues"] == 4
    assert user["erased"]["dialogues"] == 1
    assert json.loads(turn)["turn_id"] == json.loads(chat)["turn_id"]
    events = read_events(spoken.removesuffix("\n"))
    assert [event for event, _ in events if event != "delta"] == ["memories", "done"]
    assert "花生过敏" in events[-1][1]["reply"]
    assert chat_provider.requests()["kinds"].count("chat") == 2
    summaries, forgotten, erased = map(json.loads, upkeep.strip().splitlines())
    assert summaries == {"summaries": []}
    assert forgotten["dry_run"] is True
    assert erased["erased"]["turns"] == 2


@both
async def test_the_class_does_what_it_shows(name: str, tmp_path: Path) -> None:
    ((_, source),) = blocks(name, "py")
    printed = (await run(sys.executable, "-c", source, cwd=tmp_path)).splitlines()
    assert "user(小明): 我的订单号是ORD123456" in printed[0]
    assert printed[-1] == "?"
    assert (tmp_path / "data").is_dir()


def test_both_languages_have_the_same_commands() -> None:
    def commands(name: str) -> list[str]:
        return [re.sub(r"\s+#.*", "", block) for _, block in blocks(name, "sh", "bash")]

    assert commands("README.md") == commands("README.zh-CN.md")
    assert len(blocks("README.md", "python")) == len(blocks("README.zh-CN.md", "python"))


@both
def test_every_route_is_named_and_no_other(name: str) -> None:
    paths = json.loads((ROOT / "openapi/openapi.json").read_text(encoding="utf-8"))["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    text = (ROOT / name).read_text(encoding="utf-8")
    named = {f"{method} {path}" for method, path in _ROUTE.findall(text)}
    # `GET /metrics` stands in one cell with others, as `GET /health/live`, … do: each in its own backquotes.
    assert named == served


@both
def test_every_command_is_named(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    listed = re.search(r"`\.venv/bin/temporal-memory`[^`]*((?:`\w+`[^`\w]+)+)", text)
    assert listed
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(cli.commands)


@both
def test_every_make_target_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|[`'\s])make (\w+)", (ROOT / name).read_text(encoding="utf-8")))
    assert {"serve", "test", "demo", "check"} <= named <= targets
