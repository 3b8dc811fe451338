"""The double reads what our prompts really look like."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from app.chat.prompt import system_text
from app.recall.lines import memory_line
from tests.doubles.chat_answers import answer_to, kind_of

NOW = datetime(2024, 1, 16, 8, 0, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")


def prompt(question: str, memories: list[str], window: list[str] | None = None) -> list[dict[str, str]]:
    lines = [
        memory_line(
            created_at=NOW - timedelta(days=len(memories) - place),
            now=NOW,
            zone=SHANGHAI,
            language="zh",
            role="user",
            sender_name="小明",
            content=memory,
        )
        for place, memory in enumerate(memories)
    ]
    system = system_text(
        persona=None, language="zh", now=NOW, zone=SHANGHAI, summaries=[], memory_lines=lines, idle_s=None
    )
    said = [{"role": "user", "content": text} for text in window or []]
    return [{"role": "system", "content": system}, *said, {"role": "user", "content": question}]


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        (
            prompt("我的订单号是多少？", ["我的订单号是ORD123456", "我的猫叫小美"]),
            "您说过（2024-01-14 16:00:00，2天前）：“我的订单号是ORD123456”",
        ),
        (
            prompt("我现在住在哪里？", ["我住在北京", "我搬家了，现在住在上海"]),
            "您说过（2024-01-15 16:00:00，1天前）：“我搬家了，现在住在上海”",
        ),
        (prompt("我的猫叫什么？", ["我的订单号是ORD123456"]), "这个我还不知道。"),
        (prompt("我的猫叫什么？", [], ["我的猫叫小美"]), "您说过（本次对话）：“我的猫叫小美”"),
        (prompt("我的猫叫小美", []), "好的，我记下了：我的猫叫小美"),
        (prompt("你好！", []), "你好！有什么可以帮您？"),
        (prompt("谢谢", []), "不客气。"),
        (
            prompt("What is my cat's name?", ["My cat is called Mimi"]),
            'You said (2024-01-15 16:00:00，1天前): "My cat is called Mimi"',
        ),
    ],
)
def test_answers_stand_on_the_prompt(messages: list[dict[str, str]], answer: str) -> None:
    assert kind_of(messages) == "chat"
    assert answer_to("chat", messages) == answer
