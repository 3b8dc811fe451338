"""How people take back what they said, in Chinese and English. Pure.

Patterns are for folded sentences (`app.dialogues.utterances`).
"""

import re
from typing import Final

# Somebody else is corrected: the assistant, a third person, a text.
FOR_OTHERS: Final = re.compile(
    r"你.{0,12}(?:[说记算搞弄写答讲看想念认][错反](?:了|啦|的|吧|$)|理解错|不对|有误|误会)|你(?:刚才|刚刚"
    r"|上面)?.{0,2}(?:写|说"
    r"|给|算|列|讲|答)的|帮我(?:把|改|换)|把(?:这|文章|文中|上面)|我问的是|我没说|我哪有|我哪里"
    r"|(?:老师|老板|医生|客服|同事|朋友|他们?|她们?|书上|新闻|网上).{0,4}[说记算搞弄写讲看]错"
    r"|^.{1,6}(?:说|讲|告诉我)(?:他|她)"
    r"|\byou(?:'re| are) (?:wrong|mistaken)\b|\byou (?:misunderstood|got it wrong|misread|said)\b"
    r"|\bthat's not what i\b|\bi asked\b|\bcorrect me if\b|\byour (?:answer|code|reply)\b"
)
THIRD_PERSON: Final = re.compile(
    r"^(?:他|她|它|人家|听说|有人|隔壁)|^(?:he|she|his|her|their)\b|^they (?!rescheduled|moved|changed"
    r"|postponed|cancel)"
)
# What is only wished, planned or felt has not happened.
UNSETTLED: Final = re.compile(
    r"^(?:我|我们)?(?:.{0,2})(?:想|打算|准备|考虑|正在|希望)(?:要|着|去)?(?:换|改|搬|辞|转|跳)|\b(?:want"
    r"|plan|hope|thinking|would like|going) (?:to|of|about) "
    r"|(?:喜欢|爱上?|享受|讨厌)(?:住|在|上班|工作|我的|这)"
    r"|不(?:太|大)?(?:想|愿意?|打算)|(?:我|现在|很|好)想(?!到|起)|太.{1,6}了|\btoo (?!$)"
    r"|\b(?:love|like|enjoy|hate) (?:living|working|it|this|my|the|our)\b"
)
# What is proposed to others, or done to a thing on the way, is no fact that has changed.
WORK: Final = re.compile(
    r"(?:应该?|需?要|得|该|建议|最好|可以|能不能|想|打算)(?:再|都)?(?:改|换|调)(?!了)"
    r"|[把将].{1,20}?(?:改|换|变|调|升|降|压|抽)|(?:改|换|调).{1,20}(?:吧$|试试|看看|好看|方便|更[快慢好])"
    r"|[改写画做看读]到了?第|试试|观察|再跑|重新|(?:改|换|变|升级|迁移?)[成到为].{1,20}会|(?:拉|同步|注意)一下|大家注意|我改了|(?<!现)在?改好了"
    r"|\bshould\b|\blet(?:'s| us)\b|\bi (?:changed|renamed|moved) the\b|\bin your\b"
)
# A figure that goes up and down tells how work goes: 延迟降到 1.6s.
MEASURED: Final = re.compile(
    r"\d ?(?:%|毫秒|秒|分钟|个点|倍|(?:g|gb|mb|ms|s|fps)(?![a-z]))"
    r"|(?<![a-z])p\d\d(?!\d)|(?<![a-z])qps(?![a-z])|率|延迟|时延|耗时|显存"
    r"|内存|准确|召回|阈值|吞吐|\blatency\b|\baccuracy\b|\bcoverage\b|\bthroughput\b|\brecall\b|\bprecision\b"
)
# What was planned, wished or complained of held at no time.
TENTATIVE: Final = re.compile(
    r"^先|先(?!生|前)[用设写把给改放用]|试试|看看|建议|应该|上限|太.{1,3}了|\bfor now\b|\bshould\b|\btoo\b"
)
# Nothing has changed: 没搬家, was not moved, still.
UNCHANGED: Final = re.compile(
    r"没有?(?:再)?(?:改|换|变|搬|调|取消|推迟|提前|延期|跳槽|离职|涨|降|升)|还是(?:最|那|一样|老)|还(?:住|用|留)|依旧|依然|仍然|照旧|\bstill\b|(?:不会|不用|不需要|用不着)(?:再)?(?:改|换|搬|变)"
    r"|(?:\bnot|n't|\bnever) (?:\w+ )?(?:mov|chang|switch|resched|postpon|relocat|transferr|upgrad|increas)"
)
# What somebody is told not to do is no statement.
ORDER: Final = re.compile(r"^(?:别|不要|千万)|别(?:外传|忘|告诉|乱|碰|动)|^(?:don't|do not|never) ")
AIM: Final = re.compile(r"目标|\bgoal\b")
# What is so for today is so again tomorrow.
FOR_TODAY: Final = re.compile(
    r"(?<!从)(?:今[天晚早儿]|明[天早晚])(?!起|开始)|这[周次几]|一会儿?|暂时|临时|先不|刚才"
    r"|\btoday\b|\btonight\b|\bfor now\b"
    r"|\bthis (?:week|time|morning)\b|\bright now\b|\btemporarily\b"
)
# A part of a thing is changed, or a thing moved, and he who has it lives where he lived.
PART: Final = re.compile(
    r"换了?(?:个|块|张|套)?(?:新的?)?(?:手机)?(?:壳|屏|膜|电池|系统|铃声|壁纸|头像|轮胎|机油|卡套)|手机[壳屏膜]"
    r"|[把将].{1,12}?搬|搬了?[些张把个台盆]|\bmoved to tears\b|\bmoved (?:the|my|our|a) "
)
# Where somebody is or what he does for an hour takes the place of nothing.
PASSING: Final = re.compile(
    r"(?:上班|工作|家里?|公司|路上|外面|外地|开会|吃饭|忙|学校|医院|酒店|单位|这里?|那里?)(?:呢|啊|了)?"
    r"|(?!living|working|using|studying|driving|learning)[a-z]{2,12}ing\b.{0,40}"
    r"|(?:at )?(?:work|home|the office)|on (?:my way|the way|holiday|vacation|leave|a break|a call)"
    r"|in (?:bed|a meeting)|here|back|fine|ok(?:ay)?|busy|done|sick|ready"
)
# What is added stands beside what was said.
ADDITION: Final = re.compile(
    r"^(?:我|我们)?(?:还|也)(?:喜欢|对|有|想|会|爱|养|要|学|是)"
    r"|也(?:改|换|搬|用|住|转|跳|升)|^另外|^还有|\balso\b|\bas well\b|\btoo$"
    r"|\banother\b"
)

# 说错了, correction: the speaker takes back what he has just said.
SLIP: Final = re.compile(
    r"(?<!没)(?<!没有)(?:[说打写记搞弄发填讲输选]错(?:了|字)|^报错了,)|口误|笔误|更正|纠正一下|订正|说反了|记混了|手误"
    r"|^(?:不对)+[,!]|^不[,!]|^(?:不对不对|不是不是)"
    r"|\bmisspoke\b|\btypo\b|(?:^|[,.!] ?)correction\b|\bscratch that\b|\bi was wrong\b|\bmy mistake\b"
    r"|^wait,? no\b|^no,? wait\b|\bi meant\b"
    r"|\bi misremembered\b|\bi mistyped\b|\bstrike that\b|\bi made a mistake\b"
)
# 那是以前的, 改成, no longer: things have changed since.
CHANGE: Final = re.compile(
    r"那是(?:以前|之前|过去|原来|老黄历)|(?:以前|之前|上次|原来)(?:说的?|那个|的).{0,12}(?:不算|作废|过时"
    r"|不对|错|改|取消)|不算数?了|作废|改成|改为|改到|改在|改叫|改名"
    r"|改期|改签|改用|改[上喝吃坐住开走]|换人|换[成到了]|换号|换车|换工作|搬家|搬[到去进]|跳槽|转到|转专业"
    r"|转行|转岗|迁移到|迁到|升级[到为成]|推迟到|提前到|延期到|延到|已经换|有变|变[成为]"
    r"|变更|[改变]了|[涨降升]了(?![\d一二两三四五六七八九十百千半几])|涨到|降到|(?:时间|地点|地址|信息|计划)更新|^更新一?下?:|更改|调整[到为成]|(?:我"
    r"|我们).{0,3}现在(?!感觉|觉得|知道|明白|懂).{1,20}了"
    r"|\bmoved\b|\bchanged\b|\bswitched\b|\brescheduled\b|\bpostponed\b|\bno longer\b|\bany ?more\b"
    r"|\binstead\b|\bupgraded\b|\btransferred\b|\bmigrated\b"
    r"|\brenamed\b|\bis now\b|\bare now\b|\bi'm now\b|\bnow (?:called|based)\b|\b(?:i|we) now\b|\bupdate:"
    r"|\bnow(?:,? not\b|[.!]?$)"
    r"|\bextended\b|\bpushed (?:back|to)\b|\bgot (?:moved|bumped|delayed)\b|\bwent (?:up|down)\b"
    r"|\bincreased\b|\bdecreased\b|\bactually\b.{1,60}\bnow\b(?! and )"
    r"|^actually,? (?:my|our|it's|the|i live|i work)\b"
)

# A state that ends by being named: 搬家.
OVER: Final = re.compile(
    r"搬家|搬[到去进回离走]|跳槽|离职|辞职|换工作|换组|转岗|转行|转专业|换号|换车|换了?,现在|分手|离婚|作废|取消"
    r"|\bmoved (?:to|out|in|house)\b|\bquit\b|\bbroke up\b|\bdivorced\b|\bno longer\b|\bany ?more\b"
)
# What stands behind a change and has none of these tells why, or what else there is.
HOLDS_NOW: Final = re.compile(r"现在|以后|新|应该|正确|其实|\bnow\b|\bnew\b|\bfrom\b|\bit's\b|\bi'm\b")

_END: Final = r"(?=$|[,。!;.])"
_VERBS_ZH: Final = (
    "负责|住在?|在|吃|喝|用|上|做|学|养|玩|抽|开|穿|喜欢|爱|需要|去|要|走|坐|是|叫|想要?|选|订|买|练|戴|带"
)
# (retracted, replacement); 不是A，是B and its kin.
PAIRS: Final = (
    re.compile(
        rf"不(?:是|叫|在|用(?!谢|客气|了)|选|要|去)(?P<retracted>[^,。!?;]{{1,24}}?)了?(?:[,;]?\s?"
        rf"|[,;][^,。!?;不]{{0,8}}?)(?:而是|改[成为到]|换成|是|叫|在|用|选|要"
        rf"|去)(?P<replacement>[^,。!?;]{{1,40}}?)了?{_END}"
    ),
    re.compile(
        rf"(?:是|叫|在|用|改[成为到])(?P<replacement>[^,。!?;不]{{1,40}}?)了?[,;]\s?(?:而)?不(?:再)?(?:是|叫"
        rf"|在|用)(?P<retracted>[^,。!?;]{{1,24}}?)了?{_END}"
    ),
    re.compile(rf"(?:是|叫)(?P<replacement>[^,。!?;不]{{1,24}}?)不是(?P<retracted>[^,。!?;]{{1,24}}?){_END}"),
    re.compile(
        r"从(?P<retracted>[^,。!?;]{1,20}?)(?:改|换|搬|调整|变|推迟|提前|跳槽"
        r"|转)[成为到](?P<replacement>[^,。!?;]{1,30}?)了?" + _END
    ),
    re.compile(
        r"\bnot (?:on |in |at |the |a |an |for |called )?(?P<retracted>[^,.;!?]{1,40}?),? (?:but|it's|it is"
        r"|i'm|we're|they're)\b(?P<replacement>[^,;!?]{1,60})"
    ),
    re.compile(
        r"(?:is|are|'s|on|at|in|to|now),? (?P<replacement>[^,;!?]{1,40}), not (?:on |in |at |the |a |an "
        r"|for )?(?P<retracted>[^,;!?]{1,40}?)" + _END
    ),
    re.compile(
        r"\b(?:moved|changed|switched|migrated|postponed|transferred|renamed"
        r"|relocated)\b.{0,20} from (?P<retracted>[^,;!?]{1,30}?) to (?P<replacement>[^,;!?]{1,40}?)" + _END
    ),
    re.compile(
        r"\b(?:is|are|be|it's|we're|i'm|now|make it|use|on|at)\b (?P<replacement>[^,;!?]{1,60}?)"
        r" instead of (?P<retracted>[^,;!?]{1,40}?)" + _END
    ),
)
# What is no longer so; `verb` says how it was.
ENDED: Final = (
    re.compile(
        rf"(?P<verb>)(?:把|将)(?P<retracted>[^,。!?;]{{1,12}}?)(?:卖|扔|退|送人|注销|停|删|戒)了{_END}"
    ),
    re.compile(
        # 记不住, 忍不住: there 不住 is an ending.
        r"(?<!是)(?:别|(?<![记忍靠保顶撑憋拦藏留挡堵扛困站守])"
        rf"不)(?:再)?(?P<verb>{_VERBS_ZH})(?:我)?(?P<retracted>[^,。!?;\s]{{1,16}}?)(?:这[里边儿]"
        rf"|那[里边儿])?(?:上班|工作|住|开|做了)?了{_END}"
    ),
    re.compile(
        rf"(?:以前|之前|上次|原来)(?:说的?|讲的?)?(?P<verb>{_VERBS_ZH}"
        rf"|)(?P<retracted>[^,。!?;]{{1,16}}?)(?:的|那个)?(?:作废|不算数?了?|取消了?|不要了|过时了){_END}"
    ),
    re.compile(r"(?P<verb>)(?P<retracted>[^,。!?;我]{1,12}?)(?:不要了|不用了|作废了?|取消了)" + _END),
    re.compile(
        r"\bno longer (?P<verb>be |in |at |on |use |live in |work (?:at|for|in) |have |eat |drink |like "
        r"|called |an? |the |[a-z]+ing (?:in |at |for )?)?(?P<retracted>[^,;!?]{1,40}?)" + _END
    ),
    re.compile(
        r"(?:\bnot|n't|\bnever) (?P<verb>use |live in |live at |work (?:at|for|in) |have |eat |drink |like "
        r"|take |go to |play |drive |need |want |in |at |on |an? |the )?(?:the |my "
        r"|a )?(?P<retracted>[^,;!?]{1,40}?) any ?more\b"
    ),
    re.compile(
        r"(?:\bnot|\bisn't|\baren't) (?P<verb>on |in |at |the "
        r"|an? )?(?P<retracted>[^,;!?]{1,40}?)(?=, (?:it's|i'm|we're|they're|he's|she's|my|the) )"
    ),
)
# 现在住在上海, 改成周四: what holds from now on.
REPLACEMENT: Final = (
    re.compile(
        r"(?:改成|改为|改到|改在|改叫|改用|换成|换到|搬到|搬去|推迟到|提前到|延期到|迁移到|升级到|转到"
        r"|调整为|调整到|跳槽到)(?P<replacement>[^,。!?;]{1,40}?)(?:了|吧)?" + _END
    ),
    re.compile(
        r"(?:现在|应该|其实|正确的|新的?|[说打写记搞弄发填报讲]错了?,?)[^,。!?;]{0,8}?(?:住在?|是|叫|在"
        r"|用的是|开的是|学)(?P<replacement>[^,。!?;]{1,40}?)了?" + _END
    ),
    re.compile(
        r"\b(?:moved|changed|switched|migrated|upgraded|transferred|postponed"
        r"|renamed)(?: it)? to (?P<replacement>[^,;!?]{1,50}?)" + _END
    ),
    re.compile(
        r"(?:\bit's|\bit is|(?<!\bjob )\bis|\bare|\bi'm|\blive in|\bwork at"
        r"|\bmake it)(?: now)? (?P<replacement>[^,;!?]{1,50}?)(?: now)?" + _END
    ),
)
