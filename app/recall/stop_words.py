"""Terms that tell hardly anything about what a question is after. Pure.

They are kept in the index and taken out of a query only, so that a text of nothing else can still be found.
English words stand as `app.dialogues.terms` makes them: folded, cut at an apostrophe, stemmed.
"""

from typing import Final


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP_SIGNS: Final = frozenset(
    "的了吗呢吧啊呀嘛哦么是在有和与跟及或也都就还又很太不没我你您他她它们这那哪谁啥几个把被给让对从到为以于而之其会能可要想说"
)

STOP_PAIRS: Final = _set_of("""
    什么 怎么 怎样 哪个 哪些 哪里 哪儿 多少 几个 是否 是不 不是 有没 没有 为何 为什 如何 时候 一下 一个 一些
    我们 你们 他们 她们 它们 咱们 大家 自己 这个 那个 这些 那些 这里 那里 这样 那样 的话 可以 知道
    告诉 记得 还记 请问 之前 以前 曾经 上次 有关 关于
""")

STOP_WORDS: Final = _set_of("""
    a an the this that these those i me my mine myself we us our you your yourself he him his she her it they
    them their who whom whose which what when where whi how is am are was were be been being do doe did done
    have has had having would can could should might must shall and or but if then than as of at by for with
    about to from in on into over up down out off not no so too veri just also ani some don doesn didn isn
    aren wasn weren won wouldn couldn shouldn hasn haven hadn let tell pleas
""")
