"""A week of chat by a clock that is turned on: what is remembered, corrected, forgotten. Prints a transcript.

Chat, evaluation, compression, corrections and sweeps are the service's own, in this process; the model is the
scripted provider of the tests, in a process of its own. Only the clock is not real.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.chat.events import ChatRequest, Done
from app.dialogues.records import Dialogue, Session
from app.evaluation.turns import Turn
from app.recall.records import Memory, SearchQuery
from app.services import Services, open_services
from app.settings import Settings, load_settings
from app.telemetry import configure_logging
from benchmarks.chat_provider_process import run_chat_provider

_ZONE: Final = ZoneInfo("Asia/Shanghai")
_NAMESPACE: Final = "week"
_SESSION: Final = Session(10001, None)
_MONDAY: Final = datetime(2026, 11, 16, tzinfo=_ZONE)
_DAYS: Final = "一二三四五六日"
# Small, so that within a week much leaves the window, and what is remembered comes from memory.
HOT_WINDOW_TOKENS: Final = 80
_PATIENCE_S: Final = 60.0
_RETENTIONS: Final = {
    None: "完整保存，不过期",
    "none": "不进入长期记忆",
    "one_day": "保存一天",
    "one_week": "保存一周",
    "one_month": "保存一个月",
    "forever": "永久保存",
}
_OUTCOMES: Final = {
    "scored": "模型评分",
    "filtered": "规则判断，未问模型",
    "cached": "沿用同一轮的评分",
    "failed": "评估失败",
    "disabled": "评估关闭",
}
_REASONS: Final = {"expired": "到期", "unretrieved": "长期无人想起"}


class TurnedClock:
    """A clock that shows what it is set to."""

    def __init__(self) -> None:
        self.now = _MONDAY.astimezone(UTC)

    def __call__(self) -> datetime:
        """What it shows."""
        return self.now

    def set(self, day: int, time_of_day: str) -> None:
        """Show a time of a day, Monday being 1."""
        hour, minute = map(int, time_of_day.split(":"))
        self.now = (_MONDAY + timedelta(days=day - 1, hours=hour, minutes=minute)).astimezone(UTC)


class _Week:
    """The user, the bot's operator and the night, as the clock is turned on."""

    def __init__(self, services: Services, clock: TurnedClock, tell: Callable[[str], None]) -> None:
        self._services = services
        self._clock = clock
        self._tell = tell
        self._day = 0

    async def live(self) -> None:
        await self._night(1)
        await self._say(1, "09:00", "你好")
        home = await self._say(1, "09:01", "我住在杭州西湖区")
        await self._say(1, "09:03", "我对花生过敏，请记住")
        thanks = await self._say(1, "09:05", "谢谢")
        await self._say(1, "12:30", "今天午饭吃了牛肉面，味道一般")
        await self._say(1, "18:00", "我们决定下周五部署新版本")
        await self._night(2)
        await self._say(2, "08:30", "你还记得花生酱我能不能吃吗？")
        await self._look_for(2, "20:00", "谢谢", of=thanks, name="周一的“谢谢”已过一天")
        await self._night(3)
        await self._say(3, "10:00", "我搬家了，不住在杭州了，现在我住在苏州工业园区")
        await self._until_outdated(home)
        await self._say(3, "10:05", "你知道我现在住在哪里吗？")
        await self._look_for(3, "10:06", "我住在哪里？", of=home, name="旧住址")
        await self._night(4)
        await self._say(4, "22:10", "我喜欢喝美式咖啡，不加糖")
        await self._say(4, "22:11", "晚安")
        await self._night(5)
        await self._say(5, "09:30", "部署新版本定在哪一天？")
        for day in (6, 7, 8):
            await self._night(day)
        await self._say(8, "09:00", "我住在哪个城市，你还记得吗？")
        await self._night(9)
        await self._take_stock("一周之后")
        for day in (31, 110):
            await self._night(day)
        await self._take_stock("一百天以后")

    async def _say(self, day: int, time_of_day: str, text: str) -> Turn:
        self._turn_to(day, time_of_day)
        self._tell(f"{time_of_day}  用户：{text}")
        done = await self._services.chat.chat(_NAMESPACE, self._request(text))
        if done.memories and text.endswith("？"):
            self._tell_recalled(done)
        self._tell(f"       助手：{done.reply}")
        turn = await self._judged(done.turn_id)
        verdict = f"{_OUTCOMES[turn.outcome or 'failed']}：{_RETENTIONS[turn.retention]}"
        self._tell(f"       （{turn.score} 分，{verdict}）")
        await _until(self._is_quiet, what="embedding and compression")
        return turn

    def _request(self, text: str) -> ChatRequest:
        return ChatRequest(
            session=_SESSION,
            user_input=text,
            now=self._clock(),
            zone=_ZONE,
            language="zh",
            top_n=3,
            window_size=0,
            max_memory_tokens=200,
            sender_name="小林",
        )

    async def _judged(self, turn_id: str) -> Turn:
        turn = await self._services.chat.find_turn(_NAMESPACE, turn_id)

        async def is_judged() -> bool:
            nonlocal turn
            turn = await self._services.chat.find_turn(_NAMESPACE, turn_id)
            return turn.status in {"scored", "unscored"}

        await _until(is_judged, what="a score")
        return turn

    async def _is_quiet(self) -> bool:
        pending = (await self._services.dialogues.queue_facts()).pending
        window = await self._services.sessions.read(_NAMESPACE, _SESSION)
        return pending == 0 and sum(one.token_count for one in window) <= HOT_WINDOW_TOKENS

    async def _until_outdated(self, turn: Turn) -> None:
        corrections, dialogues = self._services.corrections, self._services.dialogues
        old = await dialogues.get(_NAMESPACE, turn.dialogue_ids[0])

        async def is_outdated() -> bool:
            nonlocal old
            await corrections.work_once()
            old = await dialogues.get(_NAMESPACE, old.id)
            return old.outdated

        await _until(is_outdated, what="the correction")
        new = await dialogues.get(_NAMESPACE, old.corrected_by or 0)
        self._tell(f"       （更正：“{old.content}”标记为过时，取而代之的是“{new.content}”）")

    async def _look_for(self, day: int, time_of_day: str, query: str, *, of: Turn, name: str) -> None:
        """Ask the memory as the bot's operator does, and tell whether a turn's message is found."""
        self._turn_to(day, time_of_day)
        for include_outdated in (False, True):
            found = [one.dialogue.id for one in await self._search(query, include_outdated=include_outdated)]
            is_found = of.dialogue_ids[0] in found
            with_outdated = "，include_outdated" if include_outdated else ""
            self._tell(
                f"{time_of_day}  检索“{query}”{with_outdated}：{name}{'找得到' if is_found else '找不到'}"
            )

    async def _search(self, query: str, *, include_outdated: bool) -> list[Memory]:
        result = await self._services.recall.search(
            _NAMESPACE,
            SearchQuery(
                session=_SESSION,
                query=query,
                now=self._clock(),
                zone=_ZONE,
                language="zh",
                top_n=10,
                window_size=0,
                include_outdated=include_outdated,
            ),
        )
        return result.memories

    def _tell_recalled(self, done: Done) -> None:
        for memory in done.memories:
            if memory.is_anchor and memory.dialogue.role == "user":
                self._tell(f"       回忆：{memory.line}")

    async def _night(self, day: int) -> None:
        """The daily sweep of the night before a day."""
        self._turn_to(day, "03:30")
        before = self._forgotten()
        await self._services.sweep.sweep_if_due()
        gone = {reason: count - before[reason] for reason, count in self._forgotten().items()}
        told = "，".join(f"{_REASONS[reason]} {count} 条" for reason, count in gone.items() if count)
        self._tell(f"03:30  每日清理：{'删除' + told if told else '没有要删除的'}")

    def _forgotten(self) -> Counter[str]:
        counts = Counter(dict.fromkeys(_REASONS, 0))
        for family in self._services.metrics.forgotten.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    counts[sample.labels["reason"]] += int(sample.value)
        return counts

    async def _take_stock(self, when: str) -> None:
        record, turns = await asyncio.gather(
            self._services.dialogues.stats(_NAMESPACE), self._services.evaluation.counts(_NAMESPACE)
        )
        self._tell(f"\n== {when} ==")
        if turns.outcomes:
            judged = {_OUTCOMES[outcome]: count for outcome, count in turns.outcomes.items()}
            self._tell(f"对话轮次：{_counts(judged)}")
            kept = {_RETENTIONS[retention]: count for retention, count in turns.retentions.items()}
            self._tell(f"去向：{_counts(kept)}")
        self._tell(f"已遗忘：{_counts({_REASONS[reason]: n for reason, n in self._forgotten().items()})}")
        self._tell(f"长期记忆：{record.dialogues} 条（{_counts(record.kinds)}；过时 {record.outdated}）")
        for one in await self._remaining():
            until = f"至 {one.expires_at.astimezone(_ZONE):%m-%d %H:%M}" if one.expires_at else "不过期"
            mark = "，过时" if one.outdated else ""
            self._tell(f"  · {one.role}：{one.content}（{one.score} 分，{one.kind}，{until}{mark}）")
        for summary in await self._services.summaries.list_all(_NAMESPACE, _SESSION):
            self._tell(f"  · 摘要（{summary.messages} 条消息）：{summary.content}")

    async def _remaining(self) -> list[Dialogue]:
        page = await self._services.dialogues.list_page(
            _NAMESPACE,
            session=_SESSION,
            role=None,
            since=None,
            until=None,
            descending=False,
            limit=200,
            after=None,
        )
        return page.dialogues

    def _turn_to(self, day: int, time_of_day: str) -> None:
        self._clock.set(day, time_of_day)
        if day != self._day:
            self._day = day
            date = self._clock().astimezone(_ZONE)
            self._tell(f"\n【第 {day} 天，{date.month} 月 {date.day} 日，周{_DAYS[date.weekday()]}】")


async def live_through(settings: Settings, tell: Callable[[str], None]) -> None:
    """Live through the week.

    Args:
        settings: whose chat model is the scripted provider, with a window of HOT_WINDOW_TOKENS.
        tell: is given the transcript, line by line.

    Raises:
        TimeoutError: what the background does did not come about.
    """
    clock = TurnedClock()
    async with open_services(settings, clock=clock) as services:
        await _Week(services, clock, tell).live()


async def _until(holds: Callable[[], Awaitable[bool]], *, what: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 - what is waited for happens in the database
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"waited {_PATIENCE_S:.0f} s in vain for {what}") from None


def _counts(counts: dict[str, int]) -> str:
    return "，".join(f"{name} {count}" for name, count in counts.items())


def main() -> None:
    """Print the transcript of the week."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None).parse_args()
    with tempfile.TemporaryDirectory(prefix="memory-week-") as folder, run_chat_provider() as provider:
        os.chdir(folder)  # where no .env is
        settings = load_settings(
            {
                **provider.settings,
                "data_dir": folder,
                "hot_window_tokens": HOT_WINDOW_TOKENS,
            }
        )
        configure_logging(level="WARNING")
        asyncio.run(live_through(settings, print))


if __name__ == "__main__":
    main()
