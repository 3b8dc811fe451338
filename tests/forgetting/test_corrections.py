"""Which earlier message is corrected, and the labelled pairs on which that is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.forgetting.corrections import find_corrected, read_correction
from benchmarks.rules import Pair, Split, measure_corrections, read_pairs


def corrected(message: str, *earlier: str, similarities: list[float | None] | None = None) -> int | None:
    return find_corrected(message, earlier, similarities or [None] * len(earlier))


@pytest.mark.parametrize(
    ("split", "labelled", "recall"),
    [("dev", 200, 0.7), ("held", 30, 0.8), ("blind", 18, 0.7), ("unseen", 40, 0.5)],
)
def test_what_is_marked_is_what_was_corrected(split: Split, labelled: int, recall: float) -> None:
    figures = measure_corrections(read_pairs(split))
    assert figures.labelled >= labelled
    assert figures.precision >= 0.95
    assert figures.recall >= recall


def test_the_parts_are_read() -> None:
    found = read_correction("说错了，预算不是五千，是八千")
    assert found is not None
    assert (found.retracted, found.replacement) == ("五千", "八千")
    assert found.is_slip
    assert found.topic.matters == {"budget"}


def test_no_longer_is_a_change() -> None:
    found = read_correction("We no longer use MySQL, it's PostgreSQL now")
    assert found is not None
    assert (found.retracted, found.verb) == ("mysql", "use")
    assert found.is_change
    assert not found.is_slip


@pytest.mark.parametrize(
    "message",
    [
        "不对吧？",
        "你说错了，我问的是发货时间",
        "他说错了",
        "我还喜欢喝茶",
        "如果我搬到上海呢",
        "我想换工作了",
        "Actually I think that's great",
        "“说错了，是周四”怎么翻译",
        "翻译：我搬家了，现在住在上海",
        "不用谢，我一直在这里支持你",
        "我搬家了。" + "路上很累。" * 60,
    ],
)
def test_what_corrects_nothing_is_none(message: str) -> None:
    assert read_correction(message) is None


def test_of_several_the_newest_is_meant() -> None:
    assert (
        corrected("我又搬家了，现在住成都", "我住在北京", "我搬到上海了", "今天好累", "我现在住在杭州") == 3
    )


@pytest.mark.parametrize(
    ("message", "earlier"),
    [
        ("我记不住密码了", "我的密码是abc12345"),
        ("不对，请记住我现在喜欢喝茶了", "我住在成都"),
        ("我搬家了，现在住在上海", "记住我的生日是五月二号"),
        ("Actually I love living in Paris now", "I live in Paris"),
        ("P95降到1.6s了", "P95是1.1s"),
        ("不对，应该改成异步的", "这个接口是同步的"),
        ("我还没搬家", "我住在北京"),
        ("我跳槽了，还住在原来的地方", "我住在浦东"),
        ("换手机了，住的地方信号好多了", "我住在北京"),
        ("手机换了个壳，现在是透明的", "我的手机是小米14"),
        ("我把绿萝搬到阳台了", "我住在杭州"),
        ("我妈改用华为手机了", "我妈住在老家"),
        ("My brother moved to Oslo", "my brother likes to ski"),
        ("今天不喝咖啡了", "我每天喝咖啡"),
        ("actually my coffee is cold now", "I drink coffee"),
        ("My phone is now charging", "my phone is a Pixel 8"),
        ("She is not my sister, she's my cousin", "my sister is a doctor"),
        ("今年生日改在公司过了", "我生日是三月八号"),
        ("会议改到星期五了", "会议定在周五"),
        ("I work at Apple on the design team now", "I work at Apple"),
        ("I'm actually living in Rome near the station now", "I live in Rome"),
        ("我现在学法语学到B1了", "我在学法语"),
        ("我现在不想住在杭州了", "我住在杭州"),
        ("这周二的瑜伽课取消了", "我每周二上瑜伽课"),
    ],
)
def test_what_only_looks_like_a_correction_marks_nothing(message: str, earlier: str) -> None:
    assert corrected(message, earlier) is None


@pytest.mark.parametrize(
    ("message", "earlier"),
    [
        ("我不喝咖啡了", "我每天喝咖啡"),
        ("从今天起我不喝咖啡了", "我每天喝咖啡"),
        ("我妹妹搬去南京了", "我妹妹住在苏州"),
        ("会议改到星期四了", "会议定在周五"),
        ("我搬家了", "我住在北京"),
        ("目标改成7分了", "目标是6.5分"),
        ("房租涨到4200了", "房租每月3800"),
    ],
)
def test_beside_such_the_correction_is_still_seen(message: str, earlier: str) -> None:
    assert corrected(message, earlier) == 0


def test_an_hour_is_no_measure() -> None:
    assert corrected("会议改到3点了", "会议定在2点") == 0


def test_what_one_has_is_not_what_another_has() -> None:
    message = "我搬家了，现在住在上海"
    assert corrected(message, "我妈住在苏州", "我住在北京", "我同事住在南京") == 1
    assert corrected(message, "我妈住在苏州", "我同事住在南京") is None


def test_a_question_is_not_corrected() -> None:
    assert corrected("会议改到周四了", "会议定在周三吗？", "会议是几点") is None


def test_another_thing_with_a_value_of_the_same_kind_is_not_corrected() -> None:
    assert corrected("返程时间改到下午6点了", "出发时间是早上8点") is None
    assert corrected("聚餐改到周六了", "会议定在周三") is None


def test_what_already_says_so_is_not_corrected() -> None:
    assert corrected("更正一下，会议是周四", "会议是周四") is None
    assert corrected("更正一下，会议是周四", "会议是周三", "会议是周四") == 0


def test_numbers_are_compared_whole() -> None:
    assert corrected("团队现在是10个人了，不是8个", "团队有18个人") is None
    assert corrected("团队现在是10个人了，不是8个", "团队有8个人") == 0


def test_similarity_chooses_but_never_finds() -> None:
    earlier = ("我喜欢喝茶", "今天下雨了", "我住在北京")
    assert corrected("会议改到周四了", *earlier, similarities=[0.99, 0.9, 0.2]) is None
    two = ("会议定在周三", "这次会议周三开，不会延期")
    assert corrected("会议改到周四了", *two, "今天下雨了", similarities=[0.9, 0.3, 0.3]) == 0
    assert corrected("会议改到周四了", *two, "今天下雨了") == 1


@given(st.text(), st.lists(st.text(), max_size=5), st.data())
def test_any_texts_are_compared(message: str, earlier: list[str], data: st.DataObject) -> None:
    known = st.none() | st.floats(min_value=-1, max_value=1)
    similarities = data.draw(st.lists(known, min_size=len(earlier), max_size=len(earlier)))
    found = find_corrected(message, earlier, similarities)
    assert found is None or 0 <= found < len(earlier)


@given(
    st.sampled_from([pair for pair in read_pairs("dev") if pair.corrected is not None]), st.integers(1, 20)
)
def test_chatter_in_between_changes_nothing(pair: Pair, count: int) -> None:
    chatter = ["今天路上堵死了"] * count
    earlier = [*chatter, *pair.earlier]
    found = find_corrected(pair.message, pair.earlier, pair.similarities)
    moved = find_corrected(pair.message, earlier, [None] * len(earlier))
    assert moved == (None if found is None else found + count)


@pytest.mark.parametrize("piece", ["不是", "改成", "我", "从", "not ", "是a不是", "搬家,"])
def test_messages_of_any_length_are_read(piece: str) -> None:
    long = piece * (100_000 // len(piece))
    assert read_correction(long) is None
    assert corrected("我搬家了，现在住在上海", *[long] * 20) is None
