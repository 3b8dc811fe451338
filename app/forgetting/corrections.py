"""Which earlier statement a message corrects. Pure.

To mark what still holds as outdated hides it; not to mark what is outdated leaves it to be ranked below the
newer. A message is therefore named only where it says itself what was wrong, or where it is about the same
matter of the same person and names another value of the same kind.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from app.dialogues.utterances import fold, is_question, is_task, read_clauses, split_sentences, strip_opening
from app.forgetting.correction_cues import (
    ADDITION,
    AIM,
    CHANGE,
    ENDED,
    FOR_OTHERS,
    FOR_TODAY,
    HOLDS_NOW,
    MEASURED,
    ORDER,
    OVER,
    PAIRS,
    PART,
    PASSING,
    REPLACEMENT,
    SLIP,
    TENTATIVE,
    THIRD_PERSON,
    UNCHANGED,
    UNSETTLED,
    WORK,
)
from app.forgetting.topics import VALUED, Topic, content_terms, names_head, names_person, read_topic

# A correction is short; what is longer tells a story, with other people's corrections in it.
_MOST_CHARS: Final = 200
_BRIEF_CHARS: Final = 40
_SIMILARITY_WEIGHT: Final = 0.6
_SAME: Final = 0.5
_CERTAIN: Final = 2.0
# A slip that names nothing but the right value is about what was said just before.
_SLIP_REACH: Final = 2
_FIRST_PERSON: Final = re.compile(r"我|\bmy\b")
_PAST: Final = re.compile("那是(?:以前|之前|过去|原来)|(?:以前|之前|上次)说")
_DENIED: Final = re.compile(r"不|没|别|\bnot\b|n't\b|\bno\b|\bnever\b|\bused to\b|\bleft\b|\bquit\b|\bsold\b")
_NUMBER: Final = re.compile(r"\d")
_POSSESSIVE: Final = re.compile(r"^(?:(?:我|咱|我们|咱们|这次|今年)的?|(?:my|our|the|this) )")
_PIECES: Final = re.compile(r"[^,。!;]+[,。!;]*|[,。!;]+")
_POINTERS: Final = frozenset({"那个", "这个", "那", "这", "它", "那些", "这些", "it", "that", "this"})
_WITHOUT_VERB: Final = frozenset({"", "是", "叫", "在", "in", "at", "on", "a", "an", "the", "be"})


@dataclass(frozen=True, slots=True)
class Correction:
    """A message that takes something back.

    Attributes:
        words: all of it, folded.
        retracted: what no longer holds, in its words.
        verb: how it did: 住, use; empty where only the value is named.
        replacement: what holds instead.
        is_slip: whether it says that it was wrong from the start: 说错了.
        is_change: whether it says that things have changed since: 改成, no longer.
        of_another: whether it is about a person it does not name: she, 他.
        topic: what the message is about.
    """

    words: str
    retracted: str | None
    verb: str
    replacement: str | None
    is_slip: bool
    is_change: bool
    of_another: bool
    topic: Topic


def read_correction(content: str) -> Correction | None:
    """Returns what a message says was said wrong or has changed since; None where it corrects nothing.

    Corrections of the assistant and of other people, questions and suppositions are none.
    """
    if len(content) > _MOST_CHARS:
        return None
    folded = fold(content).strip()
    topic = read_topic(folded)
    if not _asserts(folded):
        return None
    is_slip = SLIP.search(folded) is not None
    if not is_slip:
        topic = replace(topic, matters=read_topic(_without_what_follows(folded)).matters)
    retracted, verb, replacement = _read_parts(folded)
    is_change = CHANGE.search(folded) is not None
    is_report = not is_slip and not topic.matters and _reports_work(folded)
    if is_report or (retracted is None and not is_slip and not is_change):
        return None
    of_another = (
        not topic.persons
        and THIRD_PERSON.match(strip_opening(folded)) is not None
        and _FIRST_PERSON.search(folded) is None
    )
    if of_another and retracted is None:
        return None
    return Correction(
        words=folded,
        retracted=retracted,
        verb=verb,
        replacement=replacement,
        is_slip=is_slip,
        is_change=is_change or not _is_without_verb(verb),
        of_another=of_another,
        topic=topic,
    )


def find_corrected(
    correction_message: str, earlier: Sequence[str], similarities: Sequence[float | None]
) -> int | None:
    """Returns the place of the earlier message that a message corrects; None where it is not sure.

    Args:
        correction_message: what a user says now.
        earlier: what the same user said before in the session, the newest last.
        similarities: cosine similarity of each of them to the message where it is known; used to choose
            among several, never to find one.
    """
    correction = read_correction(correction_message)
    if correction is None:
        return None
    scores = {
        place: evidence + _SIMILARITY_WEIGHT * similarity
        for place, (text, similarity) in enumerate(zip(earlier, _scale(similarities), strict=True))
        if (evidence := _evidence(correction, text, distance=len(earlier) - place)) >= _CERTAIN
    }
    if not scores:
        return None
    best = max(scores.values())
    # Of several that say the same thing differently the newest is what held until now.
    return max(place for place, score in scores.items() if score >= best - _SAME)


def _without_what_follows(folded: str) -> str:
    """A message up to the last clause that changes something or tells what holds now."""
    pieces = _PIECES.findall(folded)
    while len(pieces) > 1 and not _tells_what_holds(pieces[-1]):
        pieces.pop()
    return "".join(pieces)


def _tells_what_holds(piece: str) -> bool:
    if CHANGE.search(piece) or SLIP.search(piece) or HOLDS_NOW.search(piece):
        return True
    return bool(read_topic(piece).values) or any(p.search(piece) for p in (*PAIRS, *ENDED, *REPLACEMENT))


def _asserts(folded: str) -> bool:
    """Whether a message asserts something of its own, in place of something and not beside it."""
    clauses = read_clauses(folded)
    return not (
        "?" in folded
        or is_task(folded)
        or FOR_OTHERS.search(folded)
        or UNCHANGED.search(folded)
        or PART.search(folded)
        or not any(clause.asserted for clause in clauses)
        or any(ADDITION.search(clause.text) or UNSETTLED.search(clause.text) for clause in clauses)
    )


def _reports_work(folded: str) -> bool:
    """Whether a message says how work goes or should go: nothing is taken back by that."""
    return MEASURED.search(folded) is not None or WORK.search(folded) is not None


def _read_parts(folded: str) -> tuple[str | None, str, str | None]:
    for pattern in PAIRS:
        for sentence, _ in split_sentences(folded):
            match = pattern.search(sentence)
            if match:
                return match["retracted"].strip(), "", match["replacement"].strip()
    replacement = next(
        (
            match["replacement"].strip()
            for p in REPLACEMENT
            if (match := p.search(folded)) and not PASSING.fullmatch(match["replacement"].strip())
        ),
        None,
    )
    for pattern in ENDED:
        match = pattern.search(folded)
        if match and match["retracted"].strip() not in _POINTERS:
            return match["retracted"].strip(), (match["verb"] or "").strip(), replacement
    return None, "", replacement


def _evidence(correction: Correction, text: str, *, distance: int) -> float:
    """How much speaks for `text` being the one corrected; `_CERTAIN` and more is enough.

    Args:
        correction: what is taken back.
        text: an earlier message.
        distance: how many messages ago it was said, from 1.
    """
    folded = fold(text)
    # To mark what is long would hide all else that it says.
    if len(text) > _MOST_CHARS or is_task(folded) or is_question(folded) or "?" in folded:
        return 0.0
    mine, theirs = correction.topic, read_topic(folded)
    if not _may_be_meant(correction, folded, theirs):
        return 0.0
    named = _names_its_subject(mine, folded, theirs)
    if (mine.heads and not named) or _is_another_matter(correction, theirs):
        return 0.0
    same_matter = named or bool(mine.matters & theirs.matters)
    terms = mine.terms & theirs.terms
    weight = 0.4 * min(3, len(mine.matters & theirs.matters) + len(terms) + named)
    if correction.retracted:
        apart = terms - content_terms(correction.retracted)
        # 这不是北京，是上海 may be said of a picture.
        placed = correction.is_slip or correction.is_change or same_matter or apart or distance <= _SLIP_REACH
        return 3.0 + weight if placed and _retracts(correction, folded, theirs) else 0.0
    same_kind = bool(set(mine.values) & set(theirs.values))
    bare = correction.is_slip and not mine.matters and len(mine.terms) <= 1 and distance <= _SLIP_REACH
    # In a long message a word in common says little.
    worded = len(correction.words) <= _BRIEF_CHARS and (
        len(terms) > 1 or (terms and (same_kind or _PAST.search(correction.words)))
    )
    if (
        theirs.persons - mine.persons
        or (mine.values and not same_kind)
        or not (same_matter or worded or (bare and same_kind))
        or not (same_kind or _takes_its_place(correction, folded, theirs))
        or _says_the_same(correction, folded, theirs)
        or _replaces_nothing(correction, folded, theirs)
    ):
        return 0.0
    return 2.0 + 0.5 * same_kind + weight


def _takes_its_place(correction: Correction, folded: str, theirs: Topic) -> bool:
    """Whether a message without a value of the same kind says what holds instead, or that a state is over."""
    shared = correction.topic.matters & theirs.matters
    numbered = _NUMBER.search(folded) is not None and _NUMBER.search(correction.words) is not None
    if shared and shared <= VALUED and not correction.is_slip:
        return numbered
    if not (shared or correction.is_slip or _is_about_a_head(correction, folded)):
        return False
    return (
        numbered
        or correction.is_slip
        or correction.replacement is not None
        or OVER.search(correction.words) is not None
        or _PAST.search(correction.words) is not None
    )


def _is_about_a_head(correction: Correction, folded: str) -> bool:
    """Whether an earlier message begins with a thing that this one is about, or this one is about none.

    What only mentions it further on says something else: 我爱喝咖啡 is not about 咖啡.
    """
    heads = correction.topic.heads
    subject = _POSSESSIVE.sub("", strip_opening(folded))
    return not heads or any(names_head(head, subject[: len(head) + 2]) for head in heads)


def _may_be_meant(correction: Correction, folded: str, theirs: Topic) -> bool:
    """Whether an earlier message states something, of the person whom the correction is about."""
    mine = correction.topic
    is_sure = correction.is_slip or bool(mine.matters & theirs.matters)
    if ORDER.search(folded) or (not is_sure and TENTATIVE.search(folded)):
        return False
    if correction.of_another and not theirs.persons:
        return False
    if AIM.search(folded) and not AIM.search(correction.words):
        return False
    if FOR_TODAY.search(correction.words) and not (correction.is_slip or _names_another_value(mine, theirs)):
        return False
    return not mine.persons or bool(mine.persons & theirs.persons)


def _names_another_value(mine: Topic, theirs: Topic) -> bool:
    return any(mine.values[kind] - theirs.values[kind] for kind in mine.values if kind in theirs.values)


def _is_another_matter(correction: Correction, theirs: Topic) -> bool:
    """Whether both say what they are about, and nothing of it is common: 我妈 is no matter."""
    mine = correction.topic
    if correction.retracted or mine.matters & theirs.matters or set(mine.values) & set(theirs.values):
        return False
    if mine.matters and theirs.matters:
        return True
    return bool(mine.persons) and not mine.terms & theirs.terms


def _names_its_subject(mine: Topic, folded: str, theirs: Topic) -> bool:
    """Whether an earlier message names the thing that this one is about, in its words or in others."""
    return bool(mine.persons & theirs.persons) or any(
        names_head(head, folded) or read_topic(head).matters & theirs.matters for head in mine.heads
    )


def _retracts(correction: Correction, folded: str, theirs: Topic) -> bool:
    """Whether what is taken back stands in an earlier message, said of the same matter."""
    mine, verb = correction.topic, correction.verb
    retracted = correction.retracted or ""
    if (
        not _contains(folded, retracted)
        or names_person(retracted)
        or (len(retracted) == 1 and verb in _WITHOUT_VERB)
    ):
        return False
    if mine.matters & theirs.matters or (verb and verb[:1] in folded):
        return True
    return _is_without_verb(verb) and (not mine.matters or bool(mine.persons))


def _is_without_verb(verb: str) -> bool:
    return verb.split(" ", maxsplit=1)[0] in _WITHOUT_VERB


def _contains(folded: str, part: str) -> bool:
    """Whether a text holds a part as whole numbers and words, or all of its meaningful words."""
    place = folded.find(part)
    while place >= 0:
        before, after = folded[:place][-1:], folded[place + len(part) :][:1]
        if not (_joins(before, part[0]) or _joins(part[-1], after)):
            return True
        place = folded.find(part, place + 1)
    terms = content_terms(part)
    return bool(terms) and terms <= content_terms(folded)


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and (left + right).isascii() and left.isalnum() and right.isalnum()


def _says_the_same(correction: Correction, folded: str, theirs: Topic) -> bool:
    """Whether an earlier message already has all that is said to hold now."""
    mine = correction.topic
    shared = [kind for kind in mine.values if kind in theirs.values]
    if shared:
        return all(mine.values[kind] <= theirs.values[kind] for kind in shared)
    return correction.replacement is not None and _contains(folded, correction.replacement)


def _replaces_nothing(correction: Correction, folded: str, theirs: Topic) -> bool:
    """Whether all that an earlier message names is named again, and not denied: nothing took its place."""
    mine = correction.topic
    return (
        bool(theirs.terms - _names_of(mine))
        and theirs.terms <= mine.terms
        and not mine.values
        and bool(_DENIED.search(folded)) == bool(_DENIED.search(correction.words))
    )


def _names_of(topic: Topic) -> frozenset[str]:
    return frozenset(term for head in topic.heads for term in content_terms(head))


def _scale(similarities: Sequence[float | None]) -> list[float]:
    """Similarities from 0 at their median to 1 at the highest: models differ in what they call similar."""
    known = [value for value in similarities if value is not None]
    if not known:
        return [0.0] * len(similarities)
    middle, highest = median(known), max(known)
    spread = highest - middle
    return [
        0.0 if value is None or spread <= 0 else max(0.0, (value - middle) / spread) for value in similarities
    ]
