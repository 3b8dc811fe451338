"""What a statement is about: whose it is, which matter it touches, which values it names. Pure.

Texts are folded (`app.dialogues.utterances.fold`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from app.dialogues.terms import document_terms
from app.dialogues.utterances import strip_opening


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Matters that people put in several words: who has moved lives elsewhere.
_MATTERS: Final[Mapping[str, re.Pattern[str]]] = {
    matter: re.compile(pattern)
    for matter, pattern in {
        # 记住, 保不住, 记得住: there the word is no more than an ending.
        "residence": r"(?<![记忍停抓留卡堵困站挡保按靠拦憋扛撑顶稳盯])"
        r"(?<![记忍靠保顶撑憋拦藏留挡堵扛困站守]不)(?<!得)住(?!院)|租[在的]|搬家|搬[到去进]|定居"
        r"|\b(?:live|lives|living|moved (?:to|house|out)|relocated|based in)\b",
        "address": r"地址|住址|\baddress\b",
        "phone number": r"手机号|电话|号码|换号|\bphone number\b|\bnumber is\b|\bphone is\b|\bcell\b",
        "device": r"手机(?!号)|iphone|华为|小米|荣耀|三星|oppo|vivo|\bpixel\b|\bgalaxy\b"
        r"|\bmy phone\b(?! number)",
        "form of address": r"叫我|称呼我|喊我|\bcall me\b",
        "name": r"叫(?!我|车|外卖|醒|人)|名字|改名|姓名|\bname(?:d)?\b|\bcalled\b",
        "work": r"上班|工作|换组|转岗|负责|跳槽|入职|离职|辞职|任职|就职"
        r"|\bwork(?:s|ed|ing)? (?:at|for|in|as)\b(?! \d)|\bjob\b"
        r"|\bemployer\b",
        "studies": r"专业|学的是|主修|\bmajor",
        "car": r"换车|的车|开车|开的是|车是|\bmy car\b|\bdrive\b",
        "age": r"\d岁|岁了|年龄|years old|\bturned\b",
        "weight": r"体重|公斤|\bweigh|\d ?kg\b",
        "height": r"身高|\btall\b",
        "birthday": r"生日|\bbirthday\b",
        "e-mail": r"邮箱|邮件地址|\be-?mail\b",
        "budget": r"预算|\bbudget\b",
        "password": r"密码|\bpassword\b",
        "diet": r"吃素|素食|吃荤|吃肉|\bvegetarian\b|\bvegan\b|\bmeat\b",
        "marriage": r"单身|结婚|离婚|订婚|\bsingle\b|\bmarried\b|\bdivorced\b|\bengaged\b",
        "size": r"\d+(?:\.5)?码|尺码|鞋码|\bshoe size\b|\bsize \d",
        "favourite": r"最喜欢的|\bfavou?rite\b",
        "allergy": r"过敏|\ballerg",
        "deadline": r"截止|死线|\bdeadline\b|\bdue\b",
    }.items()
}

# Of these a statement names the value.
VALUED: Final = frozenset(
    {"phone number", "age", "weight", "height", "birthday", "e-mail", "budget", "size", "deadline"}
)

_PERSONS: Final = re.compile(
    r"(?:我|咱|我们|我家|咱家)(?:的|家的|养了一?[只条]|有一?[只个条])?(?P<zh>[表堂][哥姐弟妹]|叔|姑|舅|姨|爸"
    r"|妈|父亲|母亲|爹|娘|老公|老婆|丈夫|妻子|爱人|媳妇|女朋友|男朋友|女友|男友|对象|儿子|女儿|闺女|孩子"
    r"|娃|哥|姐|弟|妹|爷爷|奶奶|外公|外婆|姥姥|姥爷|岳父|岳母|公公|婆婆|侄子|侄女|室友|朋友|同事|同学|闺蜜"
    r"|哥们|邻居|老板|领导|老师|导师|经理|猫|狗)"
    r"|\b(?:my|our|have an?)(?: \w+)? (?P<en>wife|husband|spouse|partner|girlfriend|boyfriend|son|daughter"
    r"|kid|baby|mom|mum|mother|dad|father|sister"
    r"|brother|grandma|grandpa|aunt|uncle|niece|nephew|dog|cat|roommate|friend|colleague|coworker|neighbou?r"
    r"|boss|manager|teacher|cousin)s?\b"
)
_ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(["爸", "父亲", "爹", "dad"], "father"),
    **dict.fromkeys(["妈", "母亲", "娘", "mom", "mum"], "mother"),
    **dict.fromkeys(["老公", "丈夫"], "husband"),
    **dict.fromkeys(["老婆", "妻子", "媳妇"], "wife"),
    **dict.fromkeys(["女朋友", "女友"], "girlfriend"),
    **dict.fromkeys(["男朋友", "男友"], "boyfriend"),
    **dict.fromkeys(["女儿", "闺女"], "daughter"),
}

_ZH_DIGIT: Final = "[\\d一二两三四五六七八九十百千万半]"
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_VALUES: Final[Mapping[str, re.Pattern[str]]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "e-mail": r"[\w.+-]{1,64}@[\w.-]{1,64}",
        "ip": r"\b\d{1,3}(?:\.\d{1,3}){3}\b",
        "phone": r"(?<!\d)(?:1\d{10}|\d{3}-\d{3,4}-\d{4}|\d{3}-\d{4})(?!\d)",
        "code": r"(?<![a-z0-9@.-])(?:[a-z]{1,12}-?\d{3,20}|\d{6,10}|\d{12,20})(?![\w@.])",
        "weekday": r"(?:周|星期|礼拜)([一二三四五六日天末])"
        r"|\b(mon|tues?|wed|thu|fri|sat|sun)[a-z]{0,6}days?\b",
        "date": rf"{_ZH_DIGIT}{{1,3}}月{_ZH_DIGIT}{{1,3}}[号日]?|{_ZH_DIGIT}{{1,2}}月"
        rf"|\b(?:{_MONTHS})[a-z]{{0,6}}\.? \d{{1,2}}\b|(?<!\d)\d{{1,2}}/\d{{1,2}}(?!\d)",
        "clock": rf"(?<!\d)\d{{1,2}}:\d\d|{_ZH_DIGIT}{{1,3}}点|\b\d{{1,2}} ?[ap]m\b",
        "grade": rf"{_ZH_DIGIT}年级|大[一二三四]|[初高][一二三]",
        "age": rf"{_ZH_DIGIT}{{1,3}}岁|\b\w+ years old\b|\bturned \w+",
        "people": rf"{_ZH_DIGIT}{{1,4}}个?人|\b\w+ people\b",
        "money": rf"{_ZH_DIGIT}{{1,8}}(?:块|元)|[$¥￥]\d+|\b\d+ (?:dollars|usd|euros)\b",
        "weight": rf"{_ZH_DIGIT}{{1,4}}(?:公斤|斤)|\b\d+ ?(?:kg|lbs)\b",
        "length": rf"{_ZH_DIGIT}{{1,5}}(?:公里|厘米|公分)|\b\d+ ?(?:cm|km|miles)\b",
        "size": r"\d{2}(?:\.5)?码|\bsize \d+",
        "version": r"(?<![\d.])\d{1,3}\.\d{1,3}(?:\.\d{1,3})?(?![\d.])|\bv\d+\b",
    }.items()
}
_ANY_VALUE: Final = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in _VALUES.values()))
_ZH_NUMBERS: Final = str.maketrans("一二两三四五六七八九", "1223456789")

_CLAUSES: Final = re.compile(r"[,。!;\n]|:(?!\d)")
_HANZI: Final = re.compile("[\u4e00-\u9fff]+")
_WORDS: Final = re.compile("[a-z0-9]+")
_FUNCTION_SIGNS: Final = frozenset(
    "的了吗呢吧啊我们你在是有和就都也还又很太不没这那个把被给让从到为以能可要想别新再其实应该"
)
_REPORTED_BY: Final = re.compile("^.{0,8}?说用?(?![错好定明])")
_GENERIC: Final = re.compile(
    "从?今[天后](?:起|开始)|[去今前]年|上个?[月周]|昨天|最近|时间|日期|地点|号码|名字|名称|信息|以前|以后|之前|上次|原来|那个|这个|现在"
)
_HEAD_ZH: Final = re.compile(
    "^(?P<head>[^,]{0,14}?)(?:从|现在|以后|已经|不|没|是|叫|改|换|搬|推迟|提前|延|更新|变|调整|作废|涨|降|取消"
    "|卖|[说打写记搞弄发填报讲输选点算看]错)"
)
_HEAD_EN: Final = re.compile(
    r"^(?!(?:i|we|it|this|that|there|they|he|she)\b)(?P<head>(?:[\w'-]+ ){1,5}?)(?:is|are|isn't|aren't|was"
    r"|has|have|got|moved|moves|changed|switched|went|will|now"
    r"|no longer|now|starts|ends|costs|lands|leaves|goes)\b"
)

_EMPTY_SIGNS: Final = frozenset(
    "的了吗呢吧啊呀嘛哦是在有和就都也还又很太不没我你您他她它们这那哪个把被给让对从到为以会能可要想说改换成现前后今再其实错过去来新应该"
    "下上最一二三四五六七八九十两几点号日月年周天大小"
)
_EMPTY_WORDS: Final = _set_of("""
    a an the this that i me my we us our you your he him his she her it they them is am are was were be
    been do doe did don t s m re ve ll d have has had not no and or but so if than then of at by for
    with about to from in on into up out as just actual now anymor ani more longer instead sorri wrong
    wait correct chang move switch updat reschedul scratch make use go take get been today tomorrow
    yesterday one two new also will would can could should mean meant typo misspok turn all there here
""")


@dataclass(frozen=True, slots=True)
class Topic:
    """What a statement is about.

    Attributes:
        persons: whose it is, where it is not the speaker's own.
        matters: names of `_MATTERS`.
        terms: its words that mean something, as the index has them, values and persons left out.
        heads: what stands before its verbs and names a thing: 会议室 of 会议室换到502了.
        values: for each kind of value that is named, the values.
    """

    persons: frozenset[str]
    matters: frozenset[str]
    terms: frozenset[str]
    values: Mapping[str, frozenset[str]]
    heads: tuple[str, ...]


def read_topic(folded: str) -> Topic:
    """Returns what a folded statement is about."""
    values = {
        kind: frozenset(_plain_value(match) for match in matches)
        for kind, pattern in _VALUES.items()
        if (matches := list(pattern.finditer(folded)))
    }
    return Topic(
        persons=frozenset(_ALIASES.get(name, name) for name in _person_names(folded)),
        matters=frozenset(matter for matter, pattern in _MATTERS.items() if pattern.search(folded)),
        terms=content_terms(_PERSONS.sub(" ", _ANY_VALUE.sub(" ", folded))),
        values=values,
        heads=tuple(head for clause in _CLAUSES.split(folded) if (head := _read_head(clause))),
    )


def _plain_value(match: re.Match[str]) -> str:
    """A value as it is compared: 周五 and 星期五 are one."""
    value: str = match[match.lastindex or 0]
    return value.translate(_ZH_NUMBERS).replace(" ", "")


def names_head(head: str, folded: str) -> bool:
    """Tells whether a folded text names the thing that a head names: most of its signs and words.

    返程时间 is not named by 出发时间是早上8点: what is common to both is what they are, not which.
    """
    words = content_terms(" ".join(_WORDS.findall(head)))
    signs = [sign for run in _HANZI.findall(head) for sign in run]
    pairs = [left + right in folded for left, right in pairwise(signs)]
    named = [
        (pairs[place - 1] if place else False) or (pairs[place] if place < len(pairs) else False)
        for place in range(len(signs))
    ]
    if len(signs) == 1:
        named = [signs[0] in folded]
    weight = len(signs) + 2 * len(words)
    return 2 * (sum(named) + 2 * len(words & content_terms(folded))) > weight


def _read_head(clause: str) -> str:
    """Returns the thing that a clause is about; empty where it is the speaker or a pronoun."""
    clause = _REPORTED_BY.sub("", strip_opening(clause.strip()))
    match = _HEAD_ZH.match(clause) or _HEAD_EN.match(clause)
    if match is None:
        return ""
    head = _GENERIC.sub("", match["head"])
    kept = "".join(sign for sign in head if sign not in _FUNCTION_SIGNS)
    return kept if _HANZI.search(kept) or content_terms(kept) else ""


def _person_names(folded: str) -> list[str]:
    return [match["zh"] or match["en"] for match in _PERSONS.finditer(folded)]


def names_person(folded: str) -> bool:
    """Tells whether a folded text is the name of a person and no more: 我妹妹, my sister."""
    return _PERSONS.fullmatch(folded) is not None


def content_terms(folded: str) -> frozenset[str]:
    """Returns the terms of a folded text without those that mean little alone."""
    return frozenset(
        term
        for term in document_terms(folded)
        if len(term) > 1 and term not in _EMPTY_WORDS and not _EMPTY_SIGNS.intersection(term)
    )
