"""Which messages are knowledge: facts, preferences and decisions of the user, by rules. Pure."""

import re
from typing import Final

from app.dialogues.kind_rules_en import DECISIONS_EN, FACTS_EN, PREFERENCES_EN
from app.dialogues.kind_rules_zh import DECISIONS_ZH, FACTS_ZH, PREFERENCES_ZH
from app.dialogues.records import Kind, Role
from app.dialogues.utterances import fold, is_task, read_clauses
from app.dialogues.wishes import strip_wish

# A clause of more is prose, and the patterns were made for speech.
_CLAUSE_CHARS: Final = 120
# Who decides also names what he likes, and who likes something often says who he is: the strongest is kept.
_RULES: Final[tuple[tuple[Kind, tuple[re.Pattern[str], ...]], ...]] = (
    ("decision", (DECISIONS_ZH, DECISIONS_EN)),
    ("preference", (PREFERENCES_ZH, PREFERENCES_EN)),
    ("fact", (FACTS_ZH, FACTS_EN)),
)


def classify(content: str, *, role: Role) -> Kind:
    """Returns what a message is: `decision`, else `preference`, else `fact`, else `chat`.

    Only what users assert of themselves and of their world counts. What is asked, supposed, doubted, quoted,
    given to be translated or told of others is chat, and so is all that the assistant says: it repeats what
    it was told, or says what it was trained to.
    """
    if role != "user":
        return "chat"
    folded = fold(content)
    if is_task(folded):
        return "chat"
    clauses = [
        strip_wish(clause.text)
        for clause in read_clauses(folded)
        if clause.asserted and len(clause.text) <= _CLAUSE_CHARS
    ]
    for kind, patterns in _RULES:
        if any(pattern.match(clause) for clause in clauses for pattern in patterns):
            return kind
    return "chat"
