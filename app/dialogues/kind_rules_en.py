"""What an English clause looks like that states a fact, a preference or a decision. Pure.

Every pattern is matched at the start of a folded clause (`app.dialogues.utterances`) that is asserted.
"""

import re
from typing import Final

_KIN: Final = (
    r"(?:wife|husband|spouse|partner|fianc[eé]e?|girlfriend|boyfriend|son|daughter|kids?|children|child|baby"
    r"|mom|mum|mother|dad|father"
    r"|parents|sister|brother|grandma|grandpa|grandmother|grandfather|aunt|uncle|niece|nephew|dog|cat|puppy"
    r"|kitten|parrot|roommate)"
)
_ATTRIBUTE: Final = (
    r"(?:name|nickname|birthday|age|e-?mail(?: address)?|phone(?: number)?|mobile|number|cell|address|job"
    r"|hometown|height|weight|blood type"
    r"|major|zodiac sign|company|employer|school|team|manager|boss|order(?: number| id| no\.?)?"
    r"|tracking(?: number)?|passport(?: number)?"
    r"|employee id|id|username|account(?: number)?|password|wi-?fi(?: password)?|locker code|code"
    r"|license plate|size|shoe size|flight|train"
    r"|appointment|interview|exam|wedding|deadline|surgery|meeting|anniversary|due date|budget"
    r"|native language|nationality|salary|car|server"
    r"|database|domain|stack|backend|frontend|website|repo|office|reservation|seat|room(?: number)?"
    r"|zip(?: code)?|time ?zone|booking(?: number| reference)?|ticket(?: number)?)"
)
_ADVERBS: Final = (
    r"(?:(?:currently|now|also|still|just|both|already|actually|recently|originally|really|usually|only"
    r"|all) )*"
)
_NUMBER: Final = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|twins?)"
_IS: Final = r"(?:'s| is| are| was| were| =|:)"
_AFTER_IS: Final = (
    r"(?! ?(?:not|too|so|very|that|wrong|broken|missing|why|how|what|really|mad|angry|getting|always|my|so"
    r"|to|because|here|late|gone|down|slow|ok|fine|good|great|bad)\b)"
)

FACTS_EN: Final = re.compile(
    r"^(?:"
    rf"(?:my|our)(?: (?:{_KIN})'?s?)?(?: [\w'-]+){{0,2}}? {_ATTRIBUTE}{_IS}{_AFTER_IS} ?.+"
    rf"|(?:my|our)(?: \w+)?(?: {_KIN}),?(?:'s name)?(?: is| are|'s| was| has| works| lives| goes| just"
    r"| started| attends| plays| speaks| teaches| can't| needs| died"
    rf"| turned| turns| loves| likes| hates| studies|:){_AFTER_IS} .+"
    r"|(?:the )?(?:order|tracking|phone|account|flight|booking|reference|ticket|invoice)(?: number| id"
    r"| no\.?| code)?(?: is|:|#) ?(?=\S*\d)\S.*"
    rf"|(?:i'm|i am|we're|we are) {_ADVERBS}(?:an? (?!bit|little|lot|big|huge|idiot|mess|loser|moron|fan"
    r"|fool|genius|human|person|failure|few|couple)\w.*"
    r"|allergic to|from [a-z]|based in|married|single$|divorced|pregnant|diabetic|asthmatic|vegetarian|vegan"
    r"|retired|unemployed|left-handed|colou?r-?blind|lactose"
    r"|lactose intolerant|\d{1,2}(?: years old)?$|\d{1,2} and \w+|\d+ (?:cm|kg|lbs)|studying|majoring"
    r"|working (?:at|for|as|in)|living in|moving to|expecting|in the \w+ (?:team|department)|on the \w+ team"
    r"|engaged|a native|originally from|(?:flying|travell?ing|going|relocating) to .* (?:on|next|tomorrow"
    r"|this|in)\b).*"
    rf"|(?:i|we) {_ADVERBS}(?:live|lived|work(?:ed)? (?:at|for|as|in|from|part|full|remotely|night)|teach"
    r"|study|studied|own|grew up|was born|were born|moved (?:to|from|out|in)|graduated"
    r"|drive an?|majored|got (?:married|divorced|engaged|promoted|laid off)|retired|speak|started (?:at"
    r"|a new job|working)|quit my job|joined|run an?|adopted|wear (?:a )?size|weigh|come from|commute).*"
    rf"|(?:i|we)(?: have|'ve got| have got| own) {_NUMBER} (?:\w+ ){{0,2}}?(?:kids?|children|sons?"
    r"|daughters?|cats?"
    r"|dogs?|brothers?|sisters?|siblings?|cars?|pets?|wife|husband|boy|girl|houses?|company|peanut allergy"
    r"|nut allergy)\b.*"
    r"|i have (?:type \d |high |low |severe |mild |a )*(?:diabetes|asthma|hypertension|blood pressure|celiac"
    r"|adhd|dyslexia|epilepsy|migraines|arthritis|allerg\w+|insomnia|anxiety)\b.*"
    r"|(?:we|our (?:\w+ ){1,3}|my (?:company|team|employer) )(?: ?(?:currently|all|mostly|now|still"
    r"|mainly))* ?(?:uses?|using|runs? (?:on )?|deploys? (?:to|on)|hosts?|is (?:hosted|deployed|built"
    r"|written|on|at|running)|are (?:on|using|running)|runs?) ?\w.*"
    r"|our (?:\w+ ){0,3}(?:server|database|cluster|office|team|company|deadline|app|stack|service|api)(?: is"
    r"| has| runs| uses|:).+"
    r"|my (?!point|question|problem|issue|concern|guess|idea|plan|goal|code|bad|opinion|brain|head|heart|god"
    r"|fault"
    r"|life|day|mood|turn|friend|neighbou?r|internet|computer is|phone is|next|first|last|only|main|biggest"
    r"|favou?rite|answer)"
    r"[a-z]+(?: [a-z]+)? is (?:an?|in|on|at|from|called|named|made by) \w.*"
    r"|i (?:was|have been|'ve been) diagnosed with .+"
    r"|i(?:'ll be| will be) (?:in|on|at|away|out of|travell?ing|visiting) .*"
    r")$"
)

_HABIT: Final = (
    r"(?:(?:really|absolutely|usually|generally|always|never|only|also|still|much|strongly|just|do"
    r"|definitely|"
    r"personally|mostly|actually|kind of|tend to|mainly) )*"
)
_DISLIKED_ALL: Final = (
    r"(?! (?:it|that|this|you|your|the way you|how you|them|him|her|these|those|when you)\b)"
)
PREFERENCES_EN: Final = re.compile(
    r"^(?:"
    rf"i {_HABIT}(?:prefer|like|love|hate|dislike|enjoy|detest|despise|adore|(?:don't|do not|didn't"
    r"|never) (?:really |much )?(?:like|eat|drink|enjoy|want you|care for|use)|can't stand|cannot stand"
    rf"|can't eat|avoid|favou?r)s?{_DISLIKED_ALL} .+"
    r"|i(?:'d| would)(?: much)? (?:rather|prefer)(?: not)? .+"
    r"|i (?:usually|always|never|only|generally|typically|tend to|normally) (?:drink|eat|use|take|order|wear"
    r"|book|choose|go for|sit|fly|listen|watch|read|buy|have|want|sleep|work out|cook|write) ?.*"
    r"|my favou?rite .+|i'm (?:not )?(?:really )?(?:a (?:big |huge )?fan of|into|fond of|more of an?) .+"
    r"|(?:please |just |you can |you may |everyone |people )*call me (?!back|a cab|an|a |when|later|if|at"
    r"|tomorrow|tonight|on|in|crazy|asap|now)\w.{0,20}"
    r"|(?:please )?(?:from now on|in (?:the )?future|going forward|always)\b.*"
    r"|(?:please |and |just )*(?:don't|do not|never|stop|avoid|no more) (?:call|send|us|using|use|calling"
    r"|sending|add|adding|writ|give me|giving me|talk|includ|emoji|put).*"
    r"|(?:please )?(?:keep|make) (?:it|your (?:answers?|replies|responses?|explanations?)|the (?:answers?"
    r"|replies)|answers|replies|responses) (?:\w+ )?(?:short|brief|concise|simple|formal|casual|detailed"
    r"|under|in).*"
    r"|(?:please )?(?:answer|reply|respond|write|speak|talk)(?: to me)?(?: always| only)? (?:in (?:english"
    r"|chinese|spanish|french|german|japanese|bullet|short|plain|simple)|briefly|concisely|casually"
    r"|formally).*"
    r"|i want (?:you to (?:always|never|be|use|keep|call|answer|reply|write)|(?:short|concise|detailed"
    r"|brief)) .+|no (?:emojis?|sugar|onions?|cilantro|ice|milk|meat)(?: please| for me)?"
    r")$"
)

_DAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_CHOOSE: Final = (
    r"(?:decided|chosen|chose|picked|settled|opted|agreed|selected|gone with|went with|voted|committed)"
)
DECISIONS_EN: Final = re.compile(
    r"^(?:"
    # To let's keep going nobody is bound.
    r"(?:then |ok |so )*(?:let's|let us) (?:just |all |both |definitely |please |then )*(?:go (?:with|to the)"
    r"|use|pick|choose|stick (?:with|to)|settle (?:on|for)|schedule|postpone|move (?:it|the|our|this)"
    r"|switch to"
    r"|order|buy|drop the|adopt|ship|start with|take the|cancel|deploy|make it (?=\S*\d|noon|tomorrow|"
    rf"{_DAY})|(?:meet|do|have|book|plan|push)\b(?=.*\b(?:{_DAY}|tomorrow|tonight|noon"
    r"|\d+(?::\d+)? ?[ap]m)))\b.*"
    rf"|(?:in the end,? |finally,? |after .{{1,30}} )?(?:i|we|the team|my team|our team|my (?:wife|husband"
    r"|partner) and i|the board)(?:'ve| have|'d| had)?(?: all| both| finally| just| already| now| also"
    rf"| unanimously)* {_CHOOSE}(?! (?:them|him|her|you|me|us|nothing|anything)\b)(?: to| on| that| not"
    r"| against| for| upon| it| the| a|,|:)? ?.+"
    r"|(?:i'm|i am|we're|we are)(?: definitely| just| all)? going with\b.+|(?:i'll|we'll|i will"
    r"|we will)(?: just| definitely)? (?:take|go with|go for|pick|choose|use|stick with|have) the .+"
    r"|(?:i'll|we'll|i will|we will)(?: just| definitely)? (?:go with|go for|stick with|choose|pick"
    r"|settle on) .+"
    r"|(?:final |the |my |our )*(?:decision|choice|answer|verdict|final answer)(?: is|:) .+|(?:it|that"
    r"|this)(?:'s| is) (?:settled|decided|final).*|i choose .+|we choose .+|(?:it's|that's) a deal|deal"
    r"|decided ?[:-].+|i've made up my mind.*|my mind is made up.*"
    r")$"
)
