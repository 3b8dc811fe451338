"""Words of which messages without content consist, and reading a message as a row of them. Pure."""

import re
from itertools import groupby
from typing import Final, Literal

import regex

from app.dialogues.text import normalize_text


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


SmallTalk = Literal["acknowledgement", "greeting", "test", "thanks", "courtesy", "interjection"]

# The earlier names a message in which several are found: 好的谢谢 thanks.
_ORDER: Final[tuple[SmallTalk, ...]] = (
    "thanks",
    "courtesy",
    "greeting",
    "test",
    "acknowledgement",
    "interjection",
)
_CHINESE: Final[dict[SmallTalk, str]] = {
    "acknowledgement": """
        好 好的 好滴 好哒 好嘞 好咧 好勒 好啊 好吧 好呀 好哦 好喔 好耶 行 行吧 行啊 行的 成 妥 妥了 妥妥的
        可 可以 可以的 没问题 没毛病 没事 没事了 没了 没有了 不用了 不用 不必了 收到 收到了 已收到 已阅 知道
        知道了 我知道了 知了 晓得了 了解 了解了 明白 明白了 我明白了 懂 懂了 我懂了 get到了 嗯 恩 嗯呢 嗯哪
        嗯呐
        哦 噢 喔 这样 这样啊 这样子啊 原来如此 原来是这样 是的 是 是啊 是呀 是哦 对 对的 对啊 对呀 对头 没错
        确实 的确 说得对 有道理 先这样 就这样 那就好 那好 那行 记住了 我记住了 看到了 我看到了 听到了 遵命
        得令 得嘞 好说 同意 赞同 赞 棒 真棒 太棒了 厉害 牛 不错 挺好 挺好的 很好 太好了 1
    """,
    "greeting": """
        你好 您好 你们好 大家好 哈喽 哈罗 哈啰 嗨 嗨喽 嘿 喂 在 在吗 在嘛 在么 在不 在不在 在没 在没在
        你在吗 您在吗 你在不在 还在吗 有人吗 有人在吗 有人么 有人没 客服在吗 人呢 早 早安 早上好 上午好
        中午好 下午好 晚上好 午安 晚安 好梦 早点休息 早点睡 我睡了 去睡了 我去睡了 先睡了 拜 再见 回见
        明天见 下次见 回头见 回聊 下次聊 改天聊 先下了 溜了 我先走了 撤了 好久不见 新年好 新年快乐 过年好
        节日快乐 周末愉快 周末快乐 吃了吗 88 886
    """,
    "test": """
        测试 测试一下 测试下 测试中 测一下 测下 测试消息 测试信息 这是测试 这是一条测试 这是一条测试消息
        这是测试消息 试试 试一下 试一试 能收到吗 能收到么 收到吗 收到请回复 收得到吗 听得到吗 能听到吗
        看得到吗 能看到吗 012 123 1234 12345 123456 1234567 12345678 123456789 1234567890 321 4321 54321
    """,
    "thanks": """
        谢 谢谢 谢谢你 谢谢您 谢了 多谢 感谢 非常感谢 十分感谢 太感谢 感激 感激不尽 万分感谢 蟹蟹 阿里嘎多
        三克油 3q 3克油 辛苦 辛苦了 辛苦啦 你辛苦了 您辛苦了 谢谢你的帮助 谢谢您的帮助 谢谢帮忙
    """,
    "courtesy": """
        麻烦你了 麻烦您了 麻烦了 不客气 不用谢 不用客气 不谢 客气了 客气啥 别客气 应该的 抱歉 不好意思
        对不起 没关系 打扰了 打扰您了 打扰你了
    """,
    "interjection": """
        哈 嘿嘿 嘻 呵 嘎 哇 哇塞 哇哦 哇噻 天哪 天啊 我去 卧槽 我靠 我擦 靠 草 艹 唉 哎 诶 欸 呃 额 呜 嘤 啊
        啊这 呀 咦 哼 切 呸 噗 噗嗤 嘶 嗷 喵 汪 笑死 笑死我了 笑哭 绝了 绝绝子 牛逼 牛批 nb yyds xswl
                   啦啦啦 嘟嘟 emo 无语 无语子 服了 我服了 晕
        汗 囧 好家伙 真的假的 不会吧 不是吧 什么鬼 嗯哼 么么哒 抱抱 摸摸头 贴贴
    """,
}
_ENGLISH: Final[dict[SmallTalk, str]] = {
    "acknowledgement": """
        ok, okay, okey, okie, oki, k, kk, yes, yep, yeah, yup, ya, yea, sure, sure thing, got it, gotcha, i
        see, i understand, understood, noted, roger, roger that, copy that, alright, all right, right, fine,
        cool, great, nice, perfect, good, sounds good, sounds great, sounds perfect, looks good, very good,
        awesome, excellent, no problem, no worries, np, will do, makes sense, fair enough, agreed, true,
        indeed, exactly, of course, that's fine, works for me, that's all, that is all, nothing else, no
        that's all, all good, i'm good, lgtm, for sure, good to know
    """,
    "greeting": """
        hello, hi, hey, hiya, heya, yo, howdy, hi there, hello there, hey there, good morning, morning, good
        afternoon, good evening, good night, goodnight, night, gn, gm, sweet dreams, bye, bye bye, goodbye,
        good bye, see you, see ya, see you later, see you tomorrow, see you soon, cya, later, ttyl, talk to
        you later, talk later, take care, have a nice day, have a good day, have a good one, have a great
        day, are you there, you there, anyone there, anybody here, is anyone there, are you here, hello
        world, how are you, how are you doing, how's it going, what's up, sup, wassup, good day, greetings,
        nice to meet you
    """,
    "test": """
        test, testing, tests, test message, just testing, just a test, this is a test, this is a test
        message, only a test, testing one two three, test one two three, mic check, mic test, can you hear
        me, do you read me, asdf, asdfg, asdfgh, asdfghjkl, qwer, qwert, qwerty, qwertyuiop, zxcv, zxcvb,
        zxcvbnm, abc, abcd, abcdefg, foo, foo bar, foobar, ping, pong, lorem ipsum
    """,
    "thanks": """
        thank, thanks, thank you, thank u, thank you so much, thanks so much, thank you very much, thanks
        very much, many thanks, thanks a lot, thanks a bunch, thanks a million, thx, thnx, tks, ty, tyvm,
        tysm, thanks again, thank you again, thanks for your help, thank you for your help, thanks for the
        help, thanks for everything, cheers, much appreciated, appreciate it, i appreciate it, no thanks, no
        thank you, you're the best, so kind of you, that's very kind
    """,
    "courtesy": """
        you're welcome, you are welcome, welcome, my pleasure, anytime, sorry, sorry about that, my bad,
        excuse me
    """,
    "interjection": """
        h, lol, lmao, rofl, ha, haha, hahaha, hehe, heh, hihi, omg, wow, whoa, oh, oh no, oh well, ah, aha,
        oops, ouch, hm, hmm, uh, um, umm, er, eh, meh, ugh, yay, yikes, phew, ooh, aww, aw, wtf, em, emm,
        orz, qaq, qwq, xd, tat, gg, damn, dude, bruh, gosh, my god, oh my god, oh my, jeez
    """,
}
# They add nothing to what stands beside them, and are nothing alone.
_CHINESE_PARTICLES: Final = """
    呀 啊 哦 噢 喔 啦 了 吧 呢 嘛 么 哈 咯 哟 嗷 滴 的 亲 宝 宝子 大家 各位 你 您 那 就 先 也 都 真的 真 太
    非常 老师 大佬 哥 姐 兄弟 朋友 小助手 机器人 助手 客服 群主 老板 群友 老铁 家人们 呗 捏 哒 请问
"""
_ENGLISH_PARTICLES: Final = """
    then, there, mate, man, bro, buddy, dear, friend, everyone, all, guys, folks, and, so, very, much, too,
    again, now, please, sir, bot, assistant, well, mr, for you
"""
_STICKERS: Final = _set_of("""
    微笑 撇嘴 色 发呆 得意 流泪 害羞 闭嘴 睡 大哭 尴尬 发怒 调皮 呲牙 惊讶 难过 抓狂 吐 偷笑 愉快 白眼 傲慢
    困 惊恐 憨笑 悠闲 疑问 嘘 衰 骷髅 敲打 擦汗 抠鼻 鼓掌 坏笑 鄙视 委屈 快哭了 阴险 亲亲 可怜 笑脸 脸红
    破涕为笑 恐惧 失望 嘿哈 捂脸 奸笑 机智 皱眉 耶 吃瓜 加油 旺柴 打脸 翻白眼 叹气 苦涩 裂开 嘴唇 爱心 心碎
    拥抱 强 弱 握手 胜利 抱拳 勾引 拳头 合十 啤酒 咖啡 蛋糕 玫瑰 凋谢 庆祝 礼物 烟花 爆竹 猪头 跳跳 发抖
    转圈 doge 动画表情 表情
""")
_CQ_FACE: Final = re.compile(r"\[cq:(?:face|mface|dice|rps|poke),[^\[\]]{0,200}\]")
# 233 laughs, 666 praises, 111 tests nothing in particular.
_DIGIT_SLANG: Final = re.compile(r"(?<![\w.+-])(?:23{2,40}|6{2,40}|1{3,40})(?![\w.])")
_STICKER: Final = re.compile(r"\[([^\[\]]{1,6})\]")
_EMOJI: Final = regex.compile(r"[\p{Extended_Pictographic}\p{Regional_Indicator}\p{Emoji_Modifier}]")
_SEPARATORS: Final = regex.compile(r"[^\p{L}\p{N}']+")
_EMOJI_MEANINGS: Final[dict[SmallTalk, str]] = {
    "thanks": "🙏",
    "greeting": "👋",
    "acknowledgement": "👌👍✅🆗🫡✔☑💯🤝",
}
# More than that is no small talk, whatever it consists of.
_MOST_CHARS: Final = 60


def squeeze(text: str) -> str:
    """Returns a text with each run of one sign, digits excepted, written once: 嗯嗯嗯 as 嗯, okkk as ok."""
    return "".join("".join(run) if sign.isdigit() else sign for sign, run in groupby(text))


def _build_lexicon() -> dict[str, SmallTalk | None]:
    lexicon: dict[str, SmallTalk | None] = dict.fromkeys(map(squeeze, _CHINESE_PARTICLES.split()))
    lexicon |= dict.fromkeys(map(squeeze, (word.strip() for word in _ENGLISH_PARTICLES.split(","))))
    for kind in reversed(_ORDER):
        lexicon |= dict.fromkeys(map(squeeze, _CHINESE[kind].split()), kind)
        english = (" ".join(phrase.split()) for phrase in _ENGLISH[kind].split(","))
        lexicon |= dict.fromkeys(map(squeeze, english), kind)
    return lexicon


_LEXICON: Final = _build_lexicon()
_LONGEST: Final = max(map(len, _LEXICON))


def read_small_talk(text: str) -> SmallTalk | None:
    """Returns what kind of small talk a message consists of; None where anything else is in it."""
    if len(text) > 50 * _MOST_CHARS:
        return None
    folded = normalize_text("NFKC", text).casefold().replace("’", "'")
    folded = _DIGIT_SLANG.sub(" 哈 ", _CQ_FACE.sub(" ", folded))
    if any(name not in _STICKERS and name not in _LEXICON for name in _STICKER.findall(folded)):
        return None  # [图片], [语音]: nobody knows what is in it
    folded = _STICKER.sub(lambda match: " " if match[1] in _STICKERS else match[0], folded)
    words = squeeze(_SEPARATORS.sub(" ", folded)).strip()
    if not words:
        return _read_signs(folded)
    kinds = _segment(words) if len(words) <= _MOST_CHARS else None
    return next((kind for kind in _ORDER if kinds and kind in kinds), None)


def _read_signs(folded: str) -> SmallTalk:
    emojis = set(_EMOJI.findall(folded))
    return next(
        (kind for kind, signs in _EMOJI_MEANINGS.items() if emojis & set(signs)),
        "interjection",
    )


def _segment(words: str) -> frozenset[SmallTalk] | None:
    """Returns the kinds of the fewest phrases that the text can be cut into; None where it cannot."""
    length = len(words)
    best: list[tuple[int, frozenset[SmallTalk]] | None] = [None] * (length + 1)
    best[0] = (0, frozenset())
    for start in range(length):
        reached = best[start]
        if reached is None:
            continue
        pieces, kinds = reached
        if words[start] == " ":
            best[start + 1] = _better(best[start + 1], (pieces, kinds))
        for end in range(start + 1, min(start + _LONGEST, length) + 1):
            phrase = words[start:end]
            if phrase in _LEXICON and _is_whole(words, start, end):
                kind = _LEXICON[phrase]
                best[end] = _better(best[end], (pieces + 1, kinds | {kind} if kind else kinds))
    last = best[length]
    return last[1] if last else None


def _better(
    known: tuple[int, frozenset[SmallTalk]] | None, new: tuple[int, frozenset[SmallTalk]]
) -> tuple[int, frozenset[SmallTalk]]:
    return new if known is None or new[0] < known[0] else known


def _is_whole(words: str, start: int, end: int) -> bool:
    """Whether a phrase does not begin or end inside an English word or a number."""
    return not (
        (start > 0 and _is_ascii_letter(words[start - 1]) and _is_ascii_letter(words[start]))
        or (end < len(words) and _is_ascii_letter(words[end - 1]) and _is_ascii_letter(words[end]))
    )


def _is_ascii_letter(sign: str) -> bool:
    return sign.isascii() and sign.isalnum()
