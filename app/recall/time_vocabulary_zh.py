"""Vocabulary of the Chinese time reader: what words stand for, and what makes them something else."""

import re
from typing import Final

from app.recall.numerals import CHINESE_AMOUNT
from app.recall.time_distances import Unit
from app.recall.time_places import (
    AFTERNOON,
    DEEP_NIGHT,
    DUSK,
    EARLY_MORNING,
    EVENING,
    FORENOON,
    MIDDAY,
    MORNING,
    SMALL_HOURS,
)

DIGIT: Final = "零〇一二两三四五六七八九十百"
UNIT: Final = r"(?:秒钟?|分钟?|个?小时|个?钟头|刻钟|天|日|周|个?星期|个?礼拜|个月|(?<=半)月|年)"
# Many put a blank between figures and signs: 3 天前.
QUANTITY: Final = rf"({CHINESE_AMOUNT}) ?[多来]?(个半)?({UNIT})(半)?多?"
FRONT: Final = r"前(?![端台后锋沿排缀景途任辈提卫言列往线面方夕期所])"
WEEK: Final = r"(?:周|星期|礼拜)"
FALSE_FRIENDS: Final = (
    r"今日头条|昨日重现|明日方舟|[早晚]上好|[上中下]午好|[早晚]安|五月天|[七7]天酒店|周末(?:愉快|快乐)|天天"
    r"|圣诞[老树帽歌卡贺袜]|白色情人节|一天到晚|从早到晚|两点一线|下午[茶场]|午夜场|星期五乐队|分钟热度"
)
OTHER_TIMES: Final = (
    # Recurring.
    rf"(?:每|逢)(?:隔?[一两三几])?个?(?:天|日|年|月|季度|早上?|晚上?|周末|{WEEK}[一二三四五六日天末]?)|往年|历年"
    # Told from elsewhere; 国庆节那天 is not.
    rf"|第 ?[{DIGIT}几\d]{{1,3}} ?个?(?:天|日|晚|周|星期|礼拜|月|年)|[次隔]日|隔天|同一?天"
    r"|(?<![日号天节夕旦诞秋阳午夜末一二三四五六])(?:那一?(?:天|晚|年|周|个月|个?晚上|个?早上|段)|当(?:天(?!气)|日|晚|年))"
    r"|某一?(?:天|日|年|个月)|有一?天|改天|哪一?[天年]"
    # To come.
    r"|明(?:天|日|儿|早|晚|年)|(?<!先)大?后天|后年|来年"
    rf"|下{{1,2}}一?个?(?:{WEEK}[一二三四五六日天末]?|月|年(?!级)|季度)|(?:未来|接下来|今后|往后)的?{QUANTITY}"
    rf"|(?<![\d.{DIGIT}]){QUANTITY}(?:之后|以后|后|以内|之内|内)"
)
"""Times that are not to be read, but hold what adjoins them: 每天 makes 早上八点 a habit."""

_ONE_TO_NINE: Final = "[一二三四五六七八九]"
DAY_NUMBER: Final = rf"(?:三十一?|二十{_ONE_TO_NINE}?|十{_ONE_TO_NINE}?|{_ONE_TO_NINE})"
CLOCK_NUMBER: Final = rf"(?:二十[一二三四]?|十{_ONE_TO_NINE}?|[零一二两三四五六七八九])"
# Without 分, a single digit is a decimal (三点五) and so may be more (三点十个).
CLOCK_MINUTE: Final = (
    rf" ?[0-5]\d| ?\d(?= ?分)|{_ONE_TO_NINE}(?=分)|零{_ONE_TO_NINE}"
    rf"|[二三四五]?十{_ONE_TO_NINE}?(?=分|$|[\s,，。的我你他她])"
)
COUNTED_POINTS: Final = (
    r"意见|建议|看法|想法|要求|原因|理由|说明|优惠|希望|问题|注意|体会|感想|内容"
    r"|共识|收获|[钱水血式之也都没不]"
)
"""What follows a number of points, or "a bit" (一点), and not an hour."""

# What would make 周一 and its like part of something else: 上周一直, 上周三亚, 上周天气.
WEEKDAY: Final = (
    r"(?:一(?![直般样起些下共个定边会点年次旦切件位条家])|二(?![手维次十楼个])|三(?![亚国个次分点十天千百楼])"
    r"|四(?![川个次点十天百楼])|五(?![个次点十天百楼一]|月天)|六(?![个次点十天百楼一])|日(?![本语元报常记落出期程志])"
    r"|天(?![气空津天下使猫才真])|[1-6](?![\d个次天点月号年.:]))"
)
AFTER_BARE_WEEKDAY: Final = (
    r"(?=$|[\s,，。？！?!、;；:：的我你他她它咱那这在和跟与说问去来是有开不没要早上中下午晚凌傍夜半深清聊讲提吃做买"
    r"到至会给把能可为就都还也前后之以左例聚发约想\d])"
)
SEASON: Final = r"(春|夏|秋|冬)(?:天|季|日)"
SAID_SOON: Final = re.compile(r".{0,6}?(?:[说问聊讲提]|告诉|的时候)")
AFTER_SHORT_YEAR: Final = (
    r"年(?:(?:1[0-2]|\d|[一二三四五六七八九十]{1,2})月|年?[初底末]|[春夏秋冬]|[暑寒]假"
    r"|国庆|中秋|端午|元旦|除夕|[上下]半年)"
)
AFTER_CLOCK: Final = re.compile(r"的时候|左右|许|那会|多(?![元块万个])")
AFTER_DAY_NUMBER: Final = re.compile(r"那天|[我你他她咱]|[早晚]|[上中下]午|凌晨|\d{1,2}[点:]")

WEEKDAYS: Final = {sign: number for number, sign in enumerate("一二三四五六日")} | {
    "天": 6,
    **{str(number + 1): number for number in range(6)},
}
SEASON_STARTS: Final = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
DAY_SHIFTS: Final = {"大前": -3, "前": -2, "昨": -1, "今": 0}
YEAR_SHIFTS: Final = {"大前": -3, "前": -2, "去": -1, "上一": -1, "今": 0, "本": 0}
SHIFTS: Final = {"上上": -2, "大上": -2, "上": -1, "这": 0, "本": 0}
PARTS: Final = {
    "凌晨": SMALL_HOURS,
    "清晨": EARLY_MORNING,
    "大清早": EARLY_MORNING,
    "清早": EARLY_MORNING,
    "一大早": EARLY_MORNING,
    "早上": MORNING,
    "早晨": MORNING,
    "早间": MORNING,
    "上午": FORENOON,
    "中午": MIDDAY,
    "正午": MIDDAY,
    "下午": AFTERNOON,
    "午后": AFTERNOON,
    "傍晚": DUSK,
    "黄昏": DUSK,
    "晚上": EVENING,
    "晚间": EVENING,
    "夜里": EVENING,
    "夜晚": EVENING,
    "夜间": EVENING,
    "后半夜": SMALL_HOURS,
    "大半夜": DEEP_NIGHT,
    "半夜": DEEP_NIGHT,
    "深夜": DEEP_NIGHT,
    "午夜": DEEP_NIGHT,
    "晚": EVENING,
    "早": MORNING,
}
# A given name is as likely as the feast: 李国庆.
SURNAMES: Final = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶"
    "阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺"
    "赖龚文"
)
HOLIDAY_CONTEXT: Final = (
    r"(?=节|假|期|长|小长|黄金周|那|的时候|去|前|后|之|以|我|你|在|回|出|旅|$|[,，。?？!！\s])"
)
FESTIVAL_WORDS: Final[dict[str, str]] = {
    "new_year": r"元旦节?",
    "lunar_new_year_eve": r"除夕夜?|大?年三十",
    "spring_festival": r"春节|过年(?=期间|的?时候|那|回|前|后|说|聊)",
    "lantern": r"元宵节|正月十五|(?<=年)元宵",
    "valentine": r"情人节",
    "women": r"(?:三八)?妇女节|三八节",
    "arbor": r"植树节",
    "april_fools": r"愚人节",
    "clear_bright": r"清明节|清明(?=假|期间|小长假|那|回|扫|的时候|去|前|后)|(?<=年)清明(?!上河)",
    "labour": r"(?:五一)?劳动节|五一节?(?=节|假|长假|期间|放|那|小长假|的时候|去|回|前|后)|(?<=年)五一",
    "youth": r"(?:五四)?青年节",
    "mother": r"母亲节",
    "children": r"(?:六一)?儿童节|六一(?=节|期间|那|的时候)|(?<=年)六一",
    "father": r"父亲节",
    "dragon_boat": r"端午节?",
    "lovers": r"七夕节?",
    "teacher": r"教师节",
    "mid_autumn": r"中秋节?(?!月饼)",
    "national": (
        rf"国庆节|(?<=年)国庆|(?<![{SURNAMES}])国庆{HOLIDAY_CONTEXT}"
        r"|十一(?=假期|黄金周|长假|期间|小长假)"
    ),
    "double_ninth": r"重阳节?",
    "halloween": r"万圣节?夜?",
    "singles": r"双十一|双 ?11(?!\d)|光棍节",
    "thanksgiving": r"感恩节",
    "double_twelve": r"双十二|双 ?12(?!\d)",
    "christmas_eve": r"平安夜|圣诞(?:节?前)?夜",
    "christmas": r"圣诞节?(?![老树帽歌卡贺袜])",
    "new_year_eve": r"跨年夜?(?!龄)",
}
UNITS: Final = {
    "秒": Unit.SECOND,
    "秒钟": Unit.SECOND,
    "分": Unit.MINUTE,
    "分钟": Unit.MINUTE,
    "刻钟": Unit.QUARTER_HOUR,
    "小时": Unit.HOUR,
    "钟头": Unit.HOUR,
    "天": Unit.DAY,
    "日": Unit.DAY,
    "周": Unit.WEEK,
    "星期": Unit.WEEK,
    "礼拜": Unit.WEEK,
    "月": Unit.MONTH,
    "年": Unit.YEAR,
}
LONG_PARTS: Final = "|".join(sorted((part for part in PARTS if len(part) > 1), key=len, reverse=True))
MAX_YEARS: Final = 200
MIN_FULL_YEAR: Final = 100
THIS_CENTURY: Final = 2_000
