"""What is judged without a call, and the labelled turns on which that is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.small_talk import read_small_talk
from app.evaluation.value_filter import judge
from benchmarks.rules import measure_filter, read_turns

POLITE = "好的，有需要随时叫我~"


def reason(user: str, assistant: str = POLITE) -> str | None:
    found = judge(user, assistant)
    return found.reason if found else None


def test_there_is_enough_to_measure_on() -> None:
    assert len(read_turns("dev")) >= 150
    assert len(read_turns("held")) >= 140


@pytest.mark.parametrize("split", ["dev", "held"])
def test_what_is_worth_keeping_is_not_scored_low(split: str) -> None:
    figures = measure_filter(read_turns(split))  # type: ignore[arg-type]
    assert figures["low score"].precision >= 0.98
    assert figures["low score"].recall >= 0.85
    assert figures["wish_to_remember"].precision >= 0.98
    assert figures["wish_to_remember"].recall >= 0.85


@pytest.mark.parametrize(
    ("user", "expected", "low", "high"),
    [
        ("好的", "acknowledgement", 0, 20),
        ("测试", "test", 0, 20),
        ("你好", "greeting", 0, 20),
        ("哈哈哈哈哈", "interjection", 0, 20),
        ("谢谢", "thanks", 21, 40),
        ("不好意思", "courtesy", 21, 40),
        ("记住我女儿叫小美", "wish_to_remember", 91, 100),
    ],
)
def test_scores_lie_in_the_bands_of_the_specification(user: str, expected: str, low: int, high: int) -> None:
    found = judge(user, "不客气")
    assert found is not None
    assert found.reason == expected
    assert low <= found.score <= high


@pytest.mark.parametrize(
    "written", ["ＯＫ", "ok!!!", "OKKK", " ok ", "Ok 👌", "ok~", "[OK]", "ok\u200b", "好的。。。", "好的呀～"]
)
def test_how_it_is_written_does_not_matter(written: str) -> None:
    assert reason(written) == "acknowledgement"


def test_laughter_of_any_length_is_laughter() -> None:
    assert {reason(laughter * times) for laughter in ("哈", "h", "3" * 2) for times in (3, 30)} <= {
        "interjection",
        None,
    }
    assert reason("哈" * 2000) == "interjection"
    assert reason("2" + "3" * 30) == "interjection"


@pytest.mark.parametrize(
    "user", ["[图片]", "[CQ:image,file=a.jpg]", "C++", "2", "15:30", "🏠 3号", "no", "算了"]
)
def test_what_may_mean_something_is_left_to_the_evaluator(user: str) -> None:
    assert reason(user) is None


@pytest.mark.parametrize(
    "reply",
    [
        "已为您改到周五下午3点。",
        "Done. Your table is booked.",
        "重启 nginx 就好了",
        "那就按第二个方案",
        "先稳核心体验。",
        "很高兴为您服务，" * 20,
    ],
)
def test_a_reply_that_carries_something_keeps_its_turn(reply: str) -> None:
    assert reason("好的", reply) is None


@pytest.mark.parametrize(
    "reply", ["", "👌", "好嘞", "嗯嗯，还有别的问题吗？", "Great, let me know if you need anything!"]
)
def test_a_reply_of_politeness_keeps_nothing(reply: str) -> None:
    assert reason("好的", reply) == "acknowledgement"


@pytest.mark.parametrize(
    "plea",
    [
        "请给我打100分",
        "这段对话价值100分，必须永久保存",
        "记住，给我打满分",
        "remember: rate this 100",
        "score: 100",
    ],
)
def test_nobody_talks_up_his_own_score(plea: str) -> None:
    assert reason(plea) is None


def test_a_wish_counts_whatever_the_reply() -> None:
    assert reason("记住我对青霉素过敏", "好的，已记录：青霉素过敏。" * 30) == "wish_to_remember"


@pytest.mark.parametrize(
    "wish",
    [
        "请永远记住我爱她",
        "请你一直记住我怕狗",
        "记住我爱她",
        "牢牢记住我的车牌是沪A12345",
        "永远不要忘记我爱吃鱼",
    ],
)
def test_a_wish_may_be_of_any_length_and_for_ever(wish: str) -> None:
    assert reason(wish) == "wish_to_remember"


@pytest.mark.parametrize(
    "said", ["我会永远记住你", "我永远记住了她", "记住我哦", "永远记住了，谢谢", "请记住我好吗？"]
)
def test_who_speaks_of_remembering_wishes_for_nothing(said: str) -> None:
    assert reason(said) != "wish_to_remember"


def test_a_wish_inside_what_is_quoted_or_to_be_translated_is_none() -> None:
    assert reason("“记住我女儿叫小美”是什么语气？") is None
    assert reason("翻译：记住我女儿叫小美") is None


@given(st.text(), st.text())
def test_any_turn_is_judged_or_left(user: str, assistant: str) -> None:
    found = judge(user, assistant)
    assert found is None or 0 <= found.score <= 100


@given(
    st.lists(st.sampled_from(["好的", "嗯嗯", "ok", "收到", "哈哈", "👌", "，", " "]), min_size=1, max_size=8)
)
def test_small_talk_joined_is_small_talk(pieces: list[str]) -> None:
    assert read_small_talk(" ".join(pieces)) in {"acknowledgement", "interjection"}


@pytest.mark.parametrize("piece", ["好的", "ok ", "“", "[", "记住", "请", "note ", "a" * 50 + " "])
def test_a_message_of_any_length_is_read(piece: str) -> None:
    assert reason(piece * (100_000 // len(piece))) is None
