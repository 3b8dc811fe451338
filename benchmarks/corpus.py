"""Synthetic conversations of any size: short Chinese texts, sessions of Zipf(1) sizes, vectors by topic."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.topic_vectors import TOPICS, code

_FIRST_USER = 1_000_001
_TOPICS_A_SESSION = 25
_DAYS = 120
_EXPIRED_SHARE = 0.05
_EXPIRING_SHARE = 0.45
_COMMON: tuple[str, ...] = (
    *"我你他的了是在有不就都也很吗呢吧",
    *("我们", "你们", "今天", "明天", "昨天", "现在", "时候", "这个", "那个", "什么", "怎么", "可以"),
    *("没有", "知道", "觉得", "因为", "所以", "如果", "但是", "还是", "已经", "一下", "一起", "问题"),
    *("东西", "地方", "朋友", "公司", "老师", "学校", "时间", "工作", "晚上", "早上", "下午", "周末"),
    *("最近", "以后", "之前", "需要", "应该", "可能", "帮忙", "看看", "说说", "谢谢", "好的", "收到"),
    *("马上", "大家", "自己", "事情", "开始", "结束"),
)
_CHARACTERS = (
    "山水风云花草树木春夏秋冬金银铜铁红黄蓝绿东南西北城市乡村河海湖泊书画琴棋茶酒米面车船飞机电脑手机"
    "网络音乐电影游戏足球篮球跑步旅行摄影厨房卧室客厅花园医院药店银行邮局超市餐厅咖啡蛋糕面包牛奶鸡蛋"
    "苹果香蕉西瓜葡萄项目方案设计测试部署代码文档会议客户合同预算报销发票订单快递物流仓库库存价格折扣优"
    "惠活动广告品牌营销数据模型算法训练推理评估指标"
)
_WORDS_A_TOPIC = 24


@dataclass(frozen=True)
class Query:
    """A question to one session about one of its topics."""

    session: int
    topic: int
    number: int
    text: str


@dataclass(frozen=True)
class Corpus:
    """Messages 0 to `messages` - 1, in order of time.

    Attributes:
        now: when the corpus ends; a twentieth of the messages has expired by then.
    """

    messages: int
    sessions: int
    now: datetime
    seed: int = 1

    @cached_property
    def session_of(self) -> NDArray[np.int32]:
        """The session (0 is the largest) of every message."""
        sizes = zipf_sizes(self.messages, self.sessions)
        drawn = np.repeat(np.arange(self.sessions, dtype=np.int32), sizes)
        self._rng(1).shuffle(drawn)
        return drawn

    @cached_property
    def topic_of(self) -> NDArray[np.int32]:
        """The topic of every message, one of the 25 of its session."""
        rng = self._rng(2)
        table = np.stack([rng.permutation(TOPICS)[:_TOPICS_A_SESSION] for _ in range(self.sessions)])
        return table[self.session_of, rng.integers(0, _TOPICS_A_SESSION, self.messages)].astype(np.int32)

    @cached_property
    def fates(self) -> NDArray[np.float64]:
        """A number from 0 to 1 for every message that decides whether and when it expires."""
        return self._rng(3).random(self.messages)

    @property
    def live_sizes(self) -> list[int]:
        """How many messages of each session have not expired."""
        live = self.session_of[self.fates >= _EXPIRED_SHARE]
        return [int(size) for size in np.bincount(live, minlength=self.sessions)]

    def live_numbers(self, session: int) -> NDArray[np.int64]:
        """The numbers of a session's messages that have not expired."""
        return np.flatnonzero((self.session_of == session) & (self.fates >= _EXPIRED_SHARE))

    def user_id(self, session: int) -> int:
        return _FIRST_USER + session

    def created_at(self, number: int) -> datetime:
        """Evenly over 120 days, the last two hours before the end left free: nothing is live any more."""
        return self.now - timedelta(hours=2) - timedelta(days=_DAYS) * (1 - number / self.messages)

    def expires_at(self, number: int) -> datetime | None:
        """In the past for 5 % of the messages, in the future for 45 %, never for half."""
        fate = float(self.fates[number])
        if fate < _EXPIRED_SHARE:
            created = self.created_at(number)
            return created + (self.now - timedelta(hours=1) - created) * (fate / _EXPIRED_SHARE)
        if fate < _EXPIRED_SHARE + _EXPIRING_SHARE:
            return self.now + timedelta(days=1 + 60 * fate)
        return None

    def message(self, number: int) -> dict[str, Any]:
        """The body of a message as `POST /dialogues` takes it; its `message_id` is its number."""
        topic = int(self.topic_of[number])
        expires_at = self.expires_at(number)
        return {
            "user_id": self.user_id(int(self.session_of[number])),
            "role": "assistant" if number % 2 else "user",
            "content": sentence(topic, number),
            "message_id": number,
            "created_at": self.created_at(number).isoformat(),
            **({"expires_at": expires_at.isoformat()} if expires_at else {}),
        }

    def fresh_messages(self, count: int, *, first_user: int, session_size: int) -> Iterator[dict[str, Any]]:
        """Messages of this moment to users from `first_user` on, numbered after those of the corpus."""
        for number in range(self.messages, self.messages + count):
            yield {
                "user_id": first_user + (number - self.messages) // session_size,
                "role": "assistant" if number % 2 else "user",
                "content": sentence(number % TOPICS, number),
                "message_id": number,
            }

    def write(self, path: Path) -> None:
        """All messages as JSON Lines, the form that `temporal-memory import` reads."""
        with path.open("w", encoding="utf-8") as file:
            for number in range(self.messages):
                file.write(json.dumps(self.message(number), ensure_ascii=False) + "\n")

    def queries(self, count: int) -> list[Query]:
        """Queries to sessions drawn by their number of messages: large sessions are asked more often."""
        drawn = self._rng(4).integers(0, self.messages, count)
        sessions, topics = self.session_of[drawn].tolist(), self.topic_of[drawn].tolist()
        return [
            Query(session, topic, number, _question(topic, number))
            for number, (session, topic) in enumerate(zip(sessions, topics, strict=True))
        ]

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, stream))


def corpus_until_now(*, messages: int, sessions: int) -> Corpus:
    """A corpus that ends at this moment."""
    return Corpus(messages, sessions, datetime.now(UTC).replace(microsecond=0))


def zipf_sizes(total: int, parts: int) -> NDArray[np.int64]:
    """Sizes in proportion to 1/rank, each at least 1, that add up to the total (at least `parts`)."""
    weights = 1 / np.arange(1, parts + 1)
    exact = weights / weights.sum() * (total - parts)
    sizes: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact)[: total - parts - int(sizes.sum())]] += 1
    sizes += 1
    return sizes


def sentence(topic: int, number: int) -> str:
    """A text of 20 to 110 characters, two fifths of its words the topic's own, with the message's code."""
    rng = random.Random(number)
    length = rng.randint(8, 94)
    words: list[str] = []
    while sum(map(len, words)) < length:
        words.append(_word(topic, rng))
    return f"{''.join(words)}，单号{code('message', topic=topic, number=number)}"


def _question(topic: int, number: int) -> str:
    rng = random.Random(-1 - number)
    words = "".join(_topic_word(topic, rng) for _ in range(3))
    return f"之前说的{words}怎么样了？{code('query', topic=topic, number=number)}"


def _word(topic: int, rng: random.Random) -> str:
    if rng.random() < 0.4:
        return _topic_word(topic, rng)
    # The square makes the first words of the list frequent and the last rare, as in a language.
    return _COMMON[int(len(_COMMON) * rng.random() ** 2)]


def _topic_word(topic: int, rng: random.Random) -> str:
    word = topic * _WORDS_A_TOPIC + rng.randrange(_WORDS_A_TOPIC)
    first, second = divmod(word * 7919, len(_CHARACTERS))
    return _CHARACTERS[first % len(_CHARACTERS)] + _CHARACTERS[second]
