"""What embedding models are calibrated by: questions and their answers, each in two languages. Pure.

Made up for this purpose, in the tone of chats, about things that have nothing to do with each other: every
question with every other's answer is an unrelated pair. Whoever changes a text raises `VERSION`.
"""

from typing import Final, NamedTuple

VERSION: Final = 1


class Pair(NamedTuple):
    """A question and a message that answers it."""

    question: str
    answer: str


ENGLISH: Final = (
    Pair("When is my dentist appointment?", "They moved the dentist to Thursday at half past nine."),
    Pair("What did I name the puppy?", "We finally agreed on Biscuit for the new puppy!"),
    Pair("Where did we park the car?", "I left the car on level 3, next to the blue pillar."),
    Pair("How much was the electricity bill?", "The power company charged us 84 dollars this month."),
    Pair("Who is picking up the kids from school?", "Dad said he can fetch Emma and Leo after class today."),
    Pair(
        "Which restaurant did you suggest for our anniversary?",
        "You could try Bella Notte, their terrace is lovely in the evening.",
    ),
    Pair("What am I allergic to?", "Please remember that shellfish makes me break out in hives."),
    Pair("Why was the release postponed?", "The payment tests still fail, so we ship next Monday instead."),
    Pair(
        "What book is Nora reading at the moment?",
        "I'm halfway through a novel about a lighthouse keeper, can't put it down.",
    ),
    Pair("How do I get into the building after hours?", "The door code at night is 4471, then push hard."),
    Pair("What instrument does Tom play?", "Been practising the cello every night, my neighbours hate me."),
    Pair(
        "When did my sister get married?",
        "My sister's wedding last Saturday was so beautiful, I cried twice.",
    ),
    Pair("What size shoes do I wear?", "Order the boots in 42, the 41 always pinches my toes."),
    Pair("What's the plan for the weekend?", "Let's hike up to the lake on Sunday if the rain stops."),
    Pair("Where does Omar work now?", "I started at the airport last week, doing baggage logistics."),
    Pair("How is the diet going?", "Lost two kilos so far, mostly by skipping dessert."),
)

CHINESE: Final = (
    Pair("我什么时候去看牙医？", "牙科改到周四上午九点半了。"),
    Pair("我给小狗起了什么名字？", "商量了半天，新来的小狗就叫豆包吧！"),
    Pair("车停在哪里了？", "我把车放在地下三层，蓝色柱子旁边。"),
    Pair("这个月电费多少钱？", "供电局这个月扣了我们184块。"),
    Pair("谁去接孩子放学？", "爸爸说他下午下班顺路去接两个孩子。"),
    Pair("你推荐我们去哪家餐厅过纪念日？", "可以试试江边那家意大利菜，晚上露台很漂亮。"),
    Pair("我对什么过敏？", "记一下，我一吃虾就起疹子。"),
    Pair("为什么推迟上线？", "支付的测试还没过，所以改到下周一发布。"),
    Pair("小雨最近在看什么书？", "那本讲灯塔守护人的小说我看了一半，停不下来。"),
    Pair("下班以后怎么进大楼？", "晚上门禁密码是4471，输完用力推。"),
    Pair("阿强会什么乐器？", "每天晚上练大提琴，邻居都烦死我了。"),
    Pair("我姐姐什么时候结的婚？", "上周六我姐的婚礼太美了，我哭了两次。"),
    Pair("我穿多大的鞋？", "靴子买42码吧，41码总是夹脚。"),
    Pair("周末有什么安排？", "不下雨的话，周日一起去爬山看湖。"),
    Pair("老周现在在哪上班？", "我上周去机场报到了，做行李调度。"),
    Pair("减肥进展怎么样？", "已经瘦了四斤，主要是不吃甜点了。"),
)
