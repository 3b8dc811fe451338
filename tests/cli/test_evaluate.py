"""`temporal-memory evaluate --dry-run`, as it is called."""

import json
from pathlib import Path

import pytest

from app.cli import _exit_code
from tests.doubles.chat_fixtures import ChatProvider

_PAIRS = [
    {"user": "我叫小明", "assistant": "好的，我记下了"},
    {"user": "好的", "assistant": "嗯嗯"},
    {"user": "讲个长一点的笑话", "assistant": "从前有座山"},
]


def lines(*values: object) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


@pytest.fixture
def evaluator(chat_provider: ChatProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ChatProvider:
    """Set in the environment; there is no database, and none is needed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALUATION_BASE_URL", chat_provider.base_url)
    monkeypatch.setenv("EVALUATION_API_KEY", ChatProvider.key)
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/nothing")
    return chat_provider


def test_pairs(evaluator: ChatProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "turns.jsonl").write_text(lines(*_PAIRS), encoding="utf-8")
    assert _exit_code(["evaluate", "--dry-run", "turns.jsonl"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "line 1\t93\tforever\tscored\t我叫小明",
        "line 2\t10\tnone\tfiltered: acknowledgement\t好的",
        "line 3\t45\tone_week\tscored\t讲个长一点的笑话",
        "3 turns: none 1, one_day 0, one_week 1, one_month 0, forever 1, 67% kept; 0 not judged",
    ]
    assert evaluator.requests()["kinds"] == ["evaluation"] * 2


def test_an_export_is_paired_by_session(
    evaluator: ChatProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [
        {"user_id": 1, "role": "assistant", "content": "欢迎"},
        {"user_id": 1, "role": "user", "content": "我有两件事"},
        {"user_id": 2, "role": "user", "content": "我叫小红"},
        {"user_id": 1, "role": "user", "content": "我叫小明"},
        {"user_id": 2, "role": "assistant", "content": "小红你好"},
        {"user_id": 1, "role": "assistant", "content": "小明你好"},
        {"user_id": 1, "group_id": 5, "role": "assistant", "content": "别处的话"},
    ]
    (tmp_path / "export.json").write_text(json.dumps(said), encoding="utf-8")
    assert _exit_code(["evaluate", "--dry-run", "export.json"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "item 5\t93\tforever\tscored\t我叫小红",
        "item 6\t93\tforever\tscored\t我有两件事 我叫小明",
    ]
    assert len(evaluator.requests()["kinds"]) == 2


def test_a_change_of_the_prompt_is_tried(
    evaluator: ChatProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judge.txt").write_text("你是客服质检员。", encoding="utf-8")
    (tmp_path / "turns.jsonl").write_text(lines(_PAIRS[0]), encoding="utf-8")
    monkeypatch.setenv("EVALUATION_PROMPT", "judge.txt")
    assert _exit_code(["evaluate", "--dry-run", "turns.jsonl"]) == 0
    assert evaluator.requests()["bodies"][0]["messages"][0]["content"] == "你是客服质检员。"


def test_what_can_not_be_read_or_judged_is_named(
    evaluator: ChatProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator.control({"reply": "很难说"})
    entries = (
        _PAIRS[0],
        3,
        {"user": "在吗"},
        {"role": "system", "content": "x"},
        {"user": " ", "assistant": ""},
    )
    (tmp_path / "turns.jsonl").write_text("{not json\n" + lines(*entries), encoding="utf-8")
    assert _exit_code(["evaluate", "--dry-run", "turns.jsonl"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:3] for line in told[:-1]] == [[f"line {n}", "-", "-"] for n in range(1, 7)]
    assert "no clear score" in told[1]
    assert told[-1].startswith("0 turns: none 0")
    assert told[-1].endswith("; 6 not judged")


def test_a_busy_evaluator_is_waited_for(
    evaluator: ChatProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator.control({"status": 429, "headers": {"retry-after": "1"}})
    (tmp_path / "turns.jsonl").write_text(lines(_PAIRS[0]), encoding="utf-8")
    assert _exit_code(["evaluate", "--dry-run", "turns.jsonl"]) == 0
    assert "\t93\tforever\t" in capsys.readouterr().out


def test_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.jsonl").write_text(lines(_PAIRS[0]), encoding="utf-8")
    assert _exit_code(["evaluate", "turns.jsonl"]) == 2
    assert _exit_code(["evaluate", "--dry-run", "nothing.jsonl"]) == 2
    assert _exit_code(["evaluate", "--dry-run", "turns.jsonl"]) == 2
    assert "EVALUATION_BASE_URL" in capsys.readouterr().err
