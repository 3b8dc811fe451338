import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from hypothesis import example, given
from hypothesis import strategies as st

from app.dialogues.terms import SIGNATURE_BITS, document_terms, signature, signature_bit, word_terms

texts = st.text(max_size=60) | st.text(
    st.sampled_from("我的猫，。Ａa1-.@'’ é\u0301ｶﾞガ　…—：①ﬁ℃ 나는ไทย"), max_size=40
)


def test_chinese_gives_single_characters_and_pairs() -> None:
    assert Counter(document_terms("我的猫")) == Counter(["我", "的", "猫", "我的", "的猫"])
    assert document_terms("猫，狗") == ["猫", "狗"]


@given(texts)
@example("a…b c—d")
def test_the_width_and_form_of_characters_makes_no_difference(text: str) -> None:
    assert document_terms(text) == document_terms(unicodedata.normalize("NFKC", text))
    assert all(document_terms(text))


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_ascii_gives_the_terms_that_any_text_gives(text: str) -> None:
    assert [*document_terms(text), "猫"] == document_terms(text + " 猫")


def test_a_wall_of_letters_makes_no_long_terms() -> None:
    wall = "x" + "a" * 100_000 + " " + "\u0301\u0316" * 5000 + "b-" * 5000
    assert max(map(len, document_terms(wall))) <= 9 * 64 + 2


def test_stemming_in_many_threads_gives_what_it_gives_in_one() -> None:
    words = [
        f"{head}{tail}"
        for head in ("run", "camp", "nation", "organ")
        for tail in ("ning", "ally", "izations")
    ]
    expected = {word: document_terms(word) for word in words}
    word_terms.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        for word, terms in zip(words * 20, pool.map(document_terms, words * 20), strict=True):
            assert terms == expected[word]


@given(st.lists(st.text(max_size=8), max_size=50))
def test_a_signature_has_the_bit_of_each_term(terms: list[str]) -> None:
    bits = signature(terms)
    assert len(bits) * 8 == SIGNATURE_BITS
    as_postgres_prints_it = f"{int.from_bytes(bits, 'big'):0{SIGNATURE_BITS}b}"
    places = {place for place, bit in enumerate(as_postgres_prints_it) if bit == "1"}
    assert places == {signature_bit(term) for term in terms}


def test_places_never_change_since_they_are_stored() -> None:
    assert [signature_bit(term) for term in ("订单", "ord123456", "run")] == [114, 392, 310]


def test_the_bits_of_a_signature_are_used_evenly() -> None:
    pairs = [
        chr(0x4E00 + first) + chr(0x4E00 + second)
        for first in range(0, 4000, 40)
        for second in range(0, 4000, 40)
    ]
    counts = Counter(map(signature_bit, pairs))
    mean = len(pairs) / SIGNATURE_BITS
    assert sum((counts[place] - mean) ** 2 / mean for place in range(SIGNATURE_BITS)) < 2 * SIGNATURE_BITS
