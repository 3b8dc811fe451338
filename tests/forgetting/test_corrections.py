"""Which earlier message is corrected, and the labelled pairs on which that is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.forgetting.corrections import find_corrected, read_correction
from benchmarks.rules import Pair, measure_corrections, read_pairs


def corrected(message: str, *earlier: str, similarities: list[float | None] | None = None) -> int | None:
    return find_corrected(message, earlier, similarities or [None] * len(earlier))


@pytest.mark.parametrize("split", ["dev", "held"])
def test_what_is_marked_is_what_was_corrected(split: str) -> None:
    pairs = read_pairs(split)  # type: ignore[arg-type]
    figures = measure_corrections(pairs)
    assert len(pairs) >= 60
    assert figures.labelled >= 30
    assert figures.precision >= 0.9
    assert figures.recall >= 0.6


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
    ],
)
def test_what_only_looks_like_a_correction_marks_nothing(message: str, earlier: str) -> None:
    assert corrected(message, earlier) is None


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
