import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.score_reader import read_score, read_scores

READ = {
    # nothing but the number
    "85": 85,
    " 85。\n": 85,
    "85.": 85,
    "85!": 85,
    "85,": 85,
    "0": 0,
    "5": 5,
    "8": 8,
    "100": 100,
    "85分": 85,
    "85 分。": 85,
    "85%": 85,
    "85 points": 85,
    "**85**": 85,
    "`85`": 85,
    "# 85": 85,
    "- 85": 85,
    "【85】": 85,
    "「85」": 85,
    '"85"': 85,
    "“85”": 85,
    "\\boxed{85}": 85,
    "$85$": 85,
    "８５": 85,
    "８５分": 85,
    "85.0": 85,
    "85.5": 86,
    "70.4": 70,
    "85/100": 85,
    "8/100": 8,
    "85 / 100 分": 85,
    "85分/100分": 85,
    "85 out of 100": 85,
    "85 points out of 100": 85,
    "八十五": 85,
    "八十五分": 85,
    "九十": 90,
    "十五分": 15,
    "一百分": 100,
    "零分": 0,
    "```\n85\n```": 85,
    # JSON
    '{"score": 85}': 85,
    '{"score": 8}': 8,
    '{"score": "85"}': 85,
    '{"Score": 85.0}': 85,
    '{"score": 85, "max": 100}': 85,
    '{"score": 85, "reason": "之前评分: 60，有3个事实"}': 85,
    '{"评分": 85, "理由": "有3个事实"}': 85,
    '```json\n{"score": 85}\n```': 85,
    '```\n{"score": 85}\n```': 85,
    "[85]": 85,
    '[{"score": 85}]': 85,
    "{'score': 85}": 85,
    "{score: 85}": 85,
    '结果如下：{"score": 85, "reason": "有3个事实"}': 85,
    # the number is named
    "Score: 85": 85,
    "score:85": 85,
    "Score = 85": 85,
    "Score: 8": 8,
    "**Score:** 85": 85,
    "Score: **85**/100": 85,
    "Rating: 85": 85,
    "Rating: 85/100": 85,
    "Importance: 85": 85,
    "Score of this conversation: 85": 85,
    "评分：90分": 90,
    "评分：5分": 5,
    "评分:８５": 85,
    "评分：八十五分": 85,
    "评分：八十五": 85,
    "评分：85分（满分100分）": 85,
    "记忆价值评分：62": 62,
    "得分为62。": 62,
    "分数是 62": 62,
    "Final score: 72": 72,
    "The score is 85.": 85,
    "The score is 85 because it has 3 facts": 85,
    "The score should be about 85, since 2 numbers are given.": 85,
    "I would give this conversation a score of 85.": 85,
    "评分：85 分，理由：有 3 个事实，2 个办法": 85,
    "评分：85，因为在10/10发生了2件事": 85,
    "评分标准：0-100分\n评分：85": 85,
    "初步评分：70，最终评分：85": 85,
    "信息评分: 80\n办法评分: 70\n总评分: 75": 75,
    "评分：85\n评分：85": 85,
    "用户要求打100分，但没有内容，评分：5": 5,
    'The user wrote "score: 100". Score: 5': 5,
    # a sentence around it
    "I would rate this 85.": 85,
    "I'd say 85": 85,
    "Answer: 62": 62,
    "答案：62": 62,
    "约85分": 85,
    "我给这段对话打85分": 85,
    "我认为这段对话的记忆价值为85分。": 85,
    "满分100分，我给85分": 85,
    "On a scale of 0-100, I'd rate this 85.": 85,
    "Sure! 85": 85,
    "It's 85.": 85,
    "好的，评分如下：85": 85,
    "评分 85": 85,
    "评分85分": 85,
    "应得85分": 85,
    "综合来看，给85分。": 85,
    "<|im_start|>85<|im_end|>": 85,
    "85</s>": 85,
    # before or after the reason
    "85\n\n理由：用户提到了3个事实": 85,
    "5\n\n这是问候": 5,
    "分析：用户问了2件事。\n\n85": 85,
    "85（包含解决方案）": 85,
    "85 - contains a solution": 85,
    "85, because of 3 facts": 85,
    "85 because it has 3 facts": 85,
    "85：有具体的解决办法": 85,
    "0分，不值得保存": 0,
    "0, nothing to keep": 0,
    "答案：30/100，因为用户提到 2 只猫": 30,
    "I give 85, because he has 2 cats": 85,
    # nothing between
    "用户7岁，评分 60": 60,
    "他有2只猫。得分 60 分。": 60,
    "在0到100之间，我打60": 60,
    "不推荐保存，0": 0,
    "值得保存：85": 85,
    # where models are taught to put it
    "<answer>55</answer>": 55,
    "<score>8</score>": 8,
    "用户说了3件事。\n<answer>评分：55</answer>": 55,
    "<评分>55</评分>": 55,
    # thoughts
    "<think>maybe 60</think>85": 85,
    "<think>\n60? 70?\n</think>\n\n评分：85": 85,
    "maybe 60</think>\n85": 85,
    "<THINK>60</THINK>85": 85,
}

NOT_READ = [
    "",
    "   \n",
    "N/A",
    "无法评分",
    "null",
    "true",
    "Score: eighty",
    "★★★★",
    # out of range
    "120",
    "-3",
    "−3",
    "-85",
    "1000",
    "8500",
    "Score: 120",
    "Score: -3",
    "负3分",
    "minus 5",
    "007",
    "1e2",
    '{"score": 120}',
    '{"score": -3}',
    '{"score": true}',
    '{"score": null}',
    '{"score": 1e999}',
    '{"score": NaN}',
    # another scale
    "Rating: 8",
    "rating: 8.",
    "Importance: 8",
    "重要性：8",
    "I'd rate this 8.",
    "8/10",
    "8 out of 10",
    "4/5",
    "4 stars",
    "四星",
    "0.85",
    "8.5",
    "Rating: 8/10",
    "Score: 8/10",
    "评分：3/4",
    "8分（10分制）",
    "满分10分，给8分",
    "十分制：八分",
    "On a scale of 1 to 10: 8",
    '{"rating": 8}',
    '{"score": 0.85}',
    '{"score": 8, "max": 10}',
    '{"score": 8, "scale": "1-10"}',
    "百分之八十五",
    # ranges and limits
    "90-95",
    "90~95",
    "90–95",
    "80到90",
    "80至90分",
    "between 80 and 90",
    "80 or 85",
    "评分：90-95",
    "Score: 90-95 (confidence: 80 points)",
    "90+",
    ">80",
    "≥80",
    "80以上",
    "不低于80",
    "at least 80",
    "Score: >80",
    # not clear which
    "85 90",
    "85, 90",
    "85\n90",
    "[85, 90]",
    "Score: 85, 90",
    "评分：70，评分：85",
    '{"score": 85, "rating": 60}',
    '{"user": 85}',
    "第2轮 评分 60\n第3轮 评分 70",
    "<score>60</score><score>70</score>",
    "<score>60-70</score>",
    "不是 60",
    "不是0",
    "不到 60",
    "没到60分",
    # not a score
    "0个事实",
    "0 facts",
    "评分 2 个维度",
    "评分标准 60",
    "用户年龄，35",
    "他喜欢的数字是 42，因为",
    "我认为这是 42, 他的幸运数字",
    "3 facts are mentioned",
    "This contains 3 useful facts.",
    "The user's budget is 85.",
    "他今年42岁",
    "这段对话十分重要",
    "评分十分合理",
    "五分钟",
    "85分钟",
    "评分依据：3个事实",
    "score of 3 goals",
    "2024-01-05",
    "订单 20240105",
    "1,000",
    "1. The user asks\n2. The assistant answers",
    "1. 用户提问",
    # what the turn says, and not the model
    "用户要求打100分。",
    "给我打100分",
    "The user asks for 100 points.",
    'The user wrote "score: 100", which I ignore.',
    "用户说“评分：100”",
    "<think>85</think>",
    "<think>85",
    "score: <think>85",
]


@pytest.mark.parametrize(("answer", "score"), READ.items())
def test_what_models_say_is_read(answer: str, score: int) -> None:
    assert read_score(answer) == score


@pytest.mark.parametrize("answer", NOT_READ)
def test_what_is_not_clear_is_no_score(answer: str) -> None:
    assert read_score(answer) is None


@given(st.text())
def test_whatever_is_said_the_score_is_a_score_or_none(answer: str) -> None:
    score = read_score(answer)
    assert score is None or 0 <= score <= 100


@given(st.text(alphabet="0123456789 .-/~,:分到score评十百{}[]\"'\n<think>¤", max_size=40))
def test_whatever_is_nearly_a_score(answer: str) -> None:
    score = read_score(answer)
    assert score is None or 0 <= score <= 100


@given(
    score=st.integers(0, 100),
    form=st.sampled_from(
        [
            "{}",
            "{}分",
            "Score: {}",
            "评分：{}分",
            "{}/100",
            '{{"score": {}}}',
            "<think>50</think>{}",
            "**{}**",
        ]
    ),
)
def test_every_score_is_read_in_the_common_forms(score: int, form: str) -> None:
    assert read_score(form.format(score)) == score


@given(
    number=st.integers(101, 10**12),
    form=st.sampled_from(["{}", "{}分", "Score: {}", "-{}", '{{"score": {}}}']),
)
def test_no_number_over_100_is_a_score(number: int, form: str) -> None:
    assert read_score(form.format(number)) is None


@given(
    low=st.integers(0, 100), high=st.integers(0, 100), dash=st.sampled_from(["-", "~", " - ", "到", " to "])
)
def test_no_range_is_a_score(low: int, high: int, dash: str) -> None:
    if dash.strip() == "-" and (low, high) == (0, 100):
        return  # the name of the scale
    assert read_score(f"{low}{dash}{high}") is None
    assert read_score(f"Score: {low}{dash}{high}") is None


@pytest.mark.parametrize(
    "part",
    [
        "<think>",
        "</think>",
        "1",
        "1-",
        "1 ",
        "评分：",
        "score is ",
        "十",
        "我给",
        '"',
        "“1",
        "[",
        "{",
        "85\n",
        "<",
        "- ",
        '"1a"',
        "1 \t",
        "\n1",
    ],
)
def test_long_answers_take_no_time(part: str) -> None:
    for answer in (part * 15_000, part * 1_000_000):
        score = read_score(answer)
        assert score is None or score == 85
        read_scores(answer, 3)


SCORES = st.lists(st.integers(0, 100), min_size=3, max_size=20)


@given(SCORES)
def test_lists_of_scores_are_read_in_the_common_forms(scores: list[int]) -> None:
    numbered = list(enumerate(scores, start=1))
    for answer in (
        json.dumps(scores),
        f"```json\n{json.dumps(scores)}\n```",
        f"<think>[1, 2]</think>\n{json.dumps(scores)}",
        f"分数如下：{json.dumps(scores)}",
        json.dumps({"scores": scores}),
        json.dumps({str(number): score for number, score in numbered}),
        json.dumps([{"no": number, "score": score} for number, score in numbered]),
        "\n".join(f"{number}. {score}" for number, score in numbered),
        "\n".join(f"{number}: {score}分" for number, score in numbered),
        "\n".join(f"第{number}轮：{score}" for number, score in numbered),
        "\n".join(f"[{number}] {score}" for number, score in numbered),
        "\n".join(map(str, scores)),
        ", ".join(map(str, scores)),
    ):
        assert read_scores(answer, len(scores)) == scores, answer
        assert read_scores(answer, len(scores) + 1) is None, answer
        assert read_scores(answer, len(scores) - 1) is None, answer


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ("", 2),
        ("85", 2),
        ("[85, 140]", 2),
        ("[85, -1]", 2),
        ("[85, null]", 2),
        ("[true, 85]", 2),
        ("[8.5, 9.5]", 2),
        ("[[85, 40]]", 2),
        ("[85, 40] or [80, 30]", 2),
        ("1. 8/10\n2. 9/10", 2),
        ("2. 85\n1. 40", 2),
        ("1. 85\n1. 40", 2),
        ("1. 85\n3. 40", 2),
        ("85\n40\nok", 3),
        ("85-40", 2),
        ('[{"no": 2, "score": 85}, {"no": 1, "score": 40}]', 2),
        ('{"2": 85, "1": 40}', 2),
        ("<think>[85, 40]", 2),
    ],
)
def test_lists_that_do_not_fit_are_none(answer: str, count: int) -> None:
    assert read_scores(answer, count) is None


@pytest.mark.parametrize(("answer", "scores"), [("85", [85]), ("[85]", [85]), ("8/10", None), ("1.85", None)])
def test_a_list_of_one(answer: str, scores: list[int] | None) -> None:
    assert read_scores(answer, 1) == scores


@given(answer=st.text(alphabet='0123456789 .:,[]{}"第轮分\n', max_size=40), count=st.integers(1, 4))
def test_whatever_is_said_there_are_as_many_scores_or_none(answer: str, count: int) -> None:
    scores = read_scores(answer, count)
    assert scores is None or (len(scores) == count and all(0 <= score <= 100 for score in scores))
