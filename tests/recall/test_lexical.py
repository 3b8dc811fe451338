import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.dialogues.terms import document_terms
from app.recall.lexical import QUERY_TERMS_LIMIT, Bm25, HitFinder, TermHits, query_terms

texts = st.text(max_size=60) | st.text(
    st.sampled_from("我的猫，。Ａa1-.@'’ é\u0301ｶﾞガ　…—：①ﬁ℃ 나는ไทย"), max_size=40
)


def count_hits(query: Iterable[str], documents: Sequence[Sequence[str]]) -> TermHits:
    terms = list(query)
    counts = [[document.count(term) for term in terms] for document in documents]
    lengths = [len(document) for document in documents]
    return TermHits(np.array(lengths, float), np.array(counts, float).reshape(len(documents), len(terms)))


def score(
    query: Mapping[str, float], documents: Sequence[Sequence[str]], **options: float | None
) -> list[float]:
    hits = count_hits(query, documents)
    return Bm25(query.values(), hits, **options).scores(hits)  # type: ignore[arg-type]


def finds(query: str, text: str) -> bool:
    terms = query_terms(query)
    hits = HitFinder(terms).find([text])
    return Bm25(terms.values(), hits, total_documents=50).scores(hits) > [0]


@given(texts, st.lists(texts, max_size=5))
@example("哈哈哈", ["哈哈哈哈 哈哈，哈"])
@example("的的的的 aa", ["的的的aa的", "", "aa"])
@example("我的", ["在我", "的书", "我\0的", "我的ＡB", "的"])
def test_hits_are_those_among_all_the_terms_of_each_text(query: str, texts: list[str]) -> None:
    documents = [document_terms(text) for text in texts]
    for terms in (query_terms(query), query_terms(" ".join(texts))):
        found, wanted = HitFinder(terms).find(texts), count_hits(terms, documents)
        assert found.counts.tolist() == wanted.counts.tolist()
        if terms:
            assert found.lengths.tolist() == wanted.lengths.tolist()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("猫", "我的猫叫小美"),
        ("部署", "昨天把服务部署好了"),
        ("docker 部署", "用Docker部署到服务器"),
        ("ORD123456", "我的订单号是ord123456，记一下"),
        ("123456", "我的订单号是ORD123456"),
        ("ＯＲＤ１２３４５６", "订单 ORD123456"),
        ("192.168.1.1", "路由器地址192.168.1.1打不开"),
        ("v2.0.1", "升级到V2.0.1之后"),
        ("a@b.com", "邮箱是A@B.com。"),
        ("C++", "他会C++和C#"),
        ("c#", "他会C++和C#"),
        ("node.js", "We use Node.js."),
        ("node", "We use Node.js."),
        ("email", "send me an e-mail"),
        ("13800138000", "电话138-0013-8000"),
        ("camping trips", "We went on a trip and camped"),
        ("Caroline", "I love Caroline’s pottery"),
        ("cafe", "Das Café ist zu"),
        ("コンピュータ", "新しいコンピュータを買った"),
        ("학교", "나는 학교에 갔다"),
        ("भारत", "मैं भारत से हूँ"),
        ("什么", "你说什么"),
        ("who is it", "Who is it?"),
    ],
)
def test_a_query_finds_the_text(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ord12345", "订单123456"),
        ("c++", "C is old"),
        ("v2.0.1", "v2.0.2"),
        ("猫", "我的狗"),
        ("app", "apple"),
        ("%_", "50%"),
    ],
)
def test_a_query_does_not_find_the_text(query: str, text: str) -> None:
    assert not finds(query, text)


def test_the_exact_word_outranks_its_scattered_characters() -> None:
    texts = ("花了很多时间开会", "阳台上的开花植物", "开会的时候去")
    documents = [document_terms(text) for text in texts]
    scores = score(query_terms("开花"), documents)
    assert scores[1] > scores[0] > scores[2] > 0


@given(texts | st.text(max_size=400))
def test_a_text_finds_itself(text: str) -> None:
    terms, query = document_terms(text), query_terms(text)
    assert query.keys() <= set(terms)
    assert bool(query) == bool(terms)
    assert len(query) <= QUERY_TERMS_LIMIT
    assert all(0 < weight <= 1 for weight in query.values())


def test_function_words_are_left_out_unless_there_is_nothing_else() -> None:
    assert query_terms("where is the dog") == {"dog": 1.0}
    assert query_terms("where is it").keys() == {"where", "is", "it"}
    assert query_terms("什么是微服务")["服务"] == 1.0
    assert "什么" not in query_terms("什么是微服务")


def test_of_a_long_query_what_tells_most_is_kept() -> None:
    kept = query_terms(
        "的话我们就是这样说的，" * 5 + "天地玄黄宇宙洪荒日月盈昃辰宿列张" * 3 + "ORD123456 订单 订单 订单"
    )
    assert len(kept) <= QUERY_TERMS_LIMIT
    assert {"ord123456", "订单", "天地"} <= kept.keys()


def test_scores_are_those_of_the_formula() -> None:
    documents = [list("aba"), list("b"), list("cc")]
    scores = score({"a": 1.0, "b": 0.5}, documents, total_documents=10, k1=1.2, b=0.75)
    idf = {term: math.log(1 + (10 - n + 0.5) / (n + 0.5)) for term, n in (("a", 1), ("b", 2))}

    def part(count: int, length: int) -> float:
        return count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 2))

    assert scores == pytest.approx(
        [idf["a"] * part(2, 3) + 0.5 * idf["b"] * part(1, 3), 0.5 * idf["b"] * part(1, 1), 0.0]
    )


@given(
    st.lists(st.text("abcd", max_size=8).map(list), max_size=6),
    st.dictionaries(st.sampled_from("abxy"), st.floats(0.01, 1)),
    st.none() | st.integers(0, 100),
)
def test_scores_are_finite_and_positive_exactly_where_a_term_is_shared(
    documents: list[list[str]], query: dict[str, float], total: int | None
) -> None:
    scores = score(query, documents, total_documents=total)
    assert len(scores) == len(documents)
    for document, got in zip(documents, scores, strict=True):
        assert math.isfinite(got)
        assert (got > 0) == bool(query.keys() & set(document))


def test_the_whole_code_outranks_one_of_its_parts() -> None:
    documents = [document_terms(text) for text in ("订单ORD654321", "订单ORD123456", "你好")]
    scores = score(query_terms("ORD123456"), documents)
    assert scores[1] > scores[0] > scores[2] == 0
