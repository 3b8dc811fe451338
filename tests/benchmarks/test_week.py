"""The week of `make demo-week`, lived through on the tests' database: what its transcript must say."""

from collections.abc import Callable

import pytest

from app.settings import Settings
from benchmarks.week import HOT_WINDOW_TOKENS, live_through
from tests.doubles.chat_fixtures import ChatProvider
from tests.talk import chat_settings

_OLD, _NEW = "我住在杭州西湖区", "我搬家了，不住在杭州了，现在我住在苏州工业园区"


@pytest.fixture
async def transcript(make_settings: Callable[..., Settings], chat_provider: ChatProvider) -> list[str]:
    lines: list[str] = []
    settings = make_settings(**chat_settings(chat_provider, hot_window_tokens=HOT_WINDOW_TOKENS))
    await live_through(settings, lines.append)
    return "\n".join(lines).splitlines()


async def test_a_week_is_remembered_corrected_and_forgotten(transcript: list[str]) -> None:
    def reply_to(question: str) -> str:
        place = next(n for n, line in enumerate(transcript) if line.endswith(f"用户：{question}"))
        return next(line for line in transcript[place:] if "助手：" in line)

    def verdict_on(message: str) -> str:
        place = next(n for n, line in enumerate(transcript) if line.endswith(f"用户：{message}"))
        return next(line for line in transcript[place:] if "分，" in line)

    # Remembered the next day, and a week later; from memory, since the window is long past it.
    assert "23小时前）：“我对花生过敏，请记住”" in reply_to("你还记得花生酱我能不能吃吗？")
    assert f"4天前）：“{_NEW}”" in reply_to("我住在哪个城市，你还记得吗？")
    # Corrected.
    assert f"       （更正：“{_OLD}”标记为过时，取而代之的是“{_NEW}”）" in transcript
    assert _NEW in reply_to("你知道我现在住在哪里吗？")
    assert "10:06  检索“我住在哪里？”：旧住址找不到" in transcript
    assert "10:06  检索“我住在哪里？”，include_outdated：旧住址找得到" in transcript
    # Small talk is not kept; thanks are for a day, and gone before the sweep.
    assert "规则判断，未问模型：不进入长期记忆" in verdict_on("你好")
    assert "规则判断，未问模型：永久保存" in verdict_on("我对花生过敏，请记住")
    assert "规则判断，未问模型：保存一天" in verdict_on("谢谢")
    assert "20:00  检索“谢谢”：周一的“谢谢”已过一天找不到" in transcript
    nights = [line.partition("每日清理：")[2] for line in transcript if "每日清理" in line]
    assert nights[:3] == ["没有要删除的", "没有要删除的", "删除到期 2 条"]
    assert nights[8] == "删除到期 2 条"
    # What is left.
    week, later = (n for n, line in enumerate(transcript) if line.startswith("== "))
    assert (
        "去向：永久保存 4，不进入长期记忆 2，保存一天 1，保存一个月 2，保存一周 4" in transcript[week:later]
    )
    assert "已遗忘：到期 4，长期无人想起 0" in transcript[week:later]
    assert f"  · user：{_OLD}（93 分，fact，不过期，过时）" in transcript[later:]
    assert f"  · user：{_NEW}（93 分，fact，不过期）" in transcript[later:]
    assert all("不过期" in line for line in transcript[later:] if line.startswith("  · "))
