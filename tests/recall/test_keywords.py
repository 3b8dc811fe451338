"""The lexical side, and the filters that an anchor must pass."""

from datetime import timedelta

import pytest

from app.dialogues.records import Session
from tests.recall.planting import NOW, SHANGHAI, Planted, World, best_first, contents

SAID = [
    "我的订单号是ORD123456，麻烦查一下",
    "猫",
    "团子昨天打了疫苗",
    "打折100%的那家店_真的便宜",
    "路径是C:\\data\\new",
    "今天好开心😂👨‍👩‍👧",
    "用ＧＰＴ４写了周报",
    "She was running two companies and studying law",
    "版本升级到v2.3.1了，地址192.168.1.20",
    "电话是138-0013-8000",
    "周五和Alice去看电影",
]


@pytest.fixture
async def said(world: World) -> World:
    await world.plant(Planted(text, NOW - timedelta(minutes=100 - place)) for place, text in enumerate(SAID))
    # What says nothing of it, so that something else is always there to be found by mistake.
    await world.plant(Planted(f"闲聊第{place}句", NOW - timedelta(hours=3)) for place in range(30))
    return world


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("猫", 1),
        ("疫苗", 2),
        ("团子打疫苗", 2),
        ("团子打了什么疫苗呀", 2),
        ("ORD123456", 0),
        ("ord123456", 0),
        ("ＯＲＤ１２３４５６", 0),
        ("123456", 0),
        ("订单ORD123456到哪了", 0),
        ("gpt4", 6),
        ("GPT4周报", 6),
        ("company", 7),
        ("study the laws", 7),
        ("Companies run", 7),
        ("v2.3.1", 8),
        ("192.168.1.20", 8),
        ("13800138000", 9),
        ("alice", 10),
        ("ALICE的电影", 10),
    ],
)
async def test_words_find_what_holds_them(said: World, query: str, place: int) -> None:
    found = best_first(await said.search(query, mode="keyword"))
    assert contents(found)[:1] == [SAID[place]]


@pytest.mark.parametrize(
    "query", ["%", "_", "\\", "*", ".*", "';DROP TABLE dialogues;--", "狗", "ZX999", "???"]
)
async def test_words_that_nobody_said_find_nothing(said: World, query: str) -> None:
    result = await said.search(query, mode="keyword")
    assert result.memories == []
    assert not result.truncated


@pytest.mark.parametrize(
    ("keywords", "places"),
    [
        (("%",), [3]),
        (("_",), [3]),
        (("100%的",), [3]),
        (("\\",), [4]),
        (("C:\\data",), [4]),
        (("😂",), [5]),
        (("👨‍👩‍👧",), [5]),
        (("gpt4",), [6]),
        (("ＯＲＤ",), [0]),
        (("ord", "查一下"), [0]),
        (("ord", "疫苗"), []),
        (("RUNNING", "law"), [7]),
        (("单号",), [0]),
        (("'",), []),
        (("",), range(len(SAID))),
    ],
)
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
async def test_each_keyword_occurs_in_an_anchor(
    said: World, keywords: tuple[str, ...], places: list[int], mode: str
) -> None:
    result = await said.search(
        "猫", mode=mode, keywords=keywords, top_n=100, since=NOW - timedelta(minutes=101)
    )
    assert sorted(contents(best_first(result))) == sorted(SAID[place] for place in places)


async def test_a_range_of_time_is_half_open(said: World) -> None:
    found = await said.search(
        "猫", top_n=100, since=NOW - timedelta(minutes=99), until=NOW - timedelta(minutes=95)
    )
    assert contents(found.memories) == SAID[1:5]
    nothing = await said.search("猫", top_n=100, since=NOW, until=NOW)
    assert nothing.memories == []


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_anchors_are_of_the_role_that_was_asked_for(world: World, role: str) -> None:
    await world.plant(
        Planted(f"团子第{place}次打疫苗", NOW - timedelta(minutes=place), role=role)  # type: ignore[arg-type]
        for place, role in enumerate(["user", "assistant"] * 10)
    )
    result = await world.search("疫苗", role=role, top_n=4, window_size=1)
    assert {one.dialogue.role for one in result.memories if one.is_anchor} == {role}
    assert {one.dialogue.role for one in result.memories} == {"user", "assistant"}


async def test_a_least_similarity_holds_for_what_was_measured(world: World) -> None:
    query = await world.vector_of_query("团子")
    await world.plant([Planted("团子打疫苗"), Planted("团子很乖", vector=query)])
    for mode in ("hybrid", "vector"):
        result = await world.search("团子", mode=mode, min_similarity=0.9)
        assert contents(result.memories) == ["团子很乖"]
    by_words = await world.search("团子", mode="keyword", min_similarity=1.0)
    assert len(by_words.memories) == 2


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_what_is_outdated_comes_on_request_only(world: World, mode: str) -> None:
    await world.plant([Planted("我住在杭州", outdated=True), Planted("我住在成都，离杭州远")])
    asked = await world.search("杭州", mode=mode, window_size=2)
    assert contents(asked.memories) == ["我住在成都，离杭州远"]
    with_it = await world.search("杭州", mode=mode, include_outdated=True)
    assert len(with_it.memories) == 2


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_what_has_expired_is_gone_at_the_moment_that_is_asked_for(world: World, mode: str) -> None:
    for place, expires_at in enumerate([NOW, NOW + timedelta(seconds=1), NOW + timedelta(days=1), None]):
        await world.plant(
            [Planted(f"第{place}号密码", NOW - timedelta(hours=4 - place), expires_at=expires_at)]
        )
    for moment, left in ((0, 3), (1, 2), (86_400, 1)):
        result = await world.search("密码", mode=mode, top_n=1, window_size=10,
                                    now=NOW + timedelta(seconds=moment))  # fmt: skip
        assert contents(result.memories) == [f"第{place}号密码" for place in range(4 - left, 4)]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_a_question_of_the_past_does_not_bring_back_what_has_expired(world: World, mode: str) -> None:
    ids = await world.plant(
        Planted(f"第{place}号密码", NOW - timedelta(days=5, minutes=place), expires_at=expires_at)
        for place, expires_at in enumerate([NOW - timedelta(hours=1), None])
    )
    past = NOW - timedelta(days=3)
    for top_n, window_size in ((2, 0), (1, 5)):
        result = await world.search("密码", mode=mode, top_n=top_n, window_size=window_size, now=past)
        assert contents(result.memories) == ["第1号密码"]
    told = await world.services.recall.recite("default", ids, now=past, zone=SHANGHAI, language="zh")
    assert contents(told) == ["第1号密码"]


async def test_a_rare_code_is_found_among_many_that_share_the_common_words(world: World) -> None:
    await world.plant(
        Planted(f"我的订单号是什么来着{place}", NOW - timedelta(minutes=place)) for place in range(400)
    )
    await world.plant([Planted("ORD123456已经发货", NOW - timedelta(days=3))])
    found = best_first(await world.search("我的订单号是ORD123456，现在是什么情况", mode="keyword"))
    assert contents(found)[0] == "ORD123456已经发货"


async def test_a_code_at_the_end_of_a_long_question_is_looked_for(world: World) -> None:
    await world.plant([Planted("ORD123456已经发货"), Planted("今天天气不错")])
    question = (
        "你好呀，上周六晚上和朋友逛街回来以后，突然想起有件事情想请教，商家客服电话始终打不通，邮件也没人回复，"
        "心里特别着急，帮忙查查包裹运输进度吧，地址填写公司前台，收件人写了同事名字，付款用的微信零钱，"
        "优惠券满减活动截止日期快到，赠品颜色尺码也麻烦核对清楚，单号ORD123456"
    )
    found = best_first(await world.search(question, mode="keyword"))
    assert contents(found)[:1] == ["ORD123456已经发货"]


async def test_a_speaker_is_found_by_name(world: World) -> None:
    await world.plant(
        Planted(text, user_id=user, group_id=-5, sender_name=name)
        for user, name, text in ((1, "小明", "明天去爬山"), (2, "小红", "我不去"), (3, "阿强", "算我一个"))
    )
    found = best_first(await world.search("小红说了什么", of=Session(1, -5), scope="group", mode="keyword"))
    assert contents(found)[0] == "我不去"
