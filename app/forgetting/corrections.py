"""Which earlier statement a message corrects. Pure.

To mark what still holds as outdated hides it; not to mark what is outdated leaves it to be ranked below the
newer. A message is therefore named only where it says itself what was wrong, or where it is about the same
matter of the same person and names another value of the same kind.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.dialogues.utterances import fold, is_question, is_task, read_clauses, split_sentences, strip_opening
from app.forgetting.correction_cues import (
    ADDITION,
    CHANGE,
    ENDED,
    FOR_OTHERS,
    PAIRS,
    REPLACEMENT,
    SLIP,
    THIRD_PERSON,
)
from app.forgetting.topics import Topic, content_terms, read_topic

# A correction is short; what is longer tells a story, with other people's corrections in it.
_MOST_CHARS: Final = 200
_CERTAIN: Final = 2.0
# A slip that names nothing but the right value is about what was said just before.
_SLIP_REACH: Final = 2
_FIRST_PERSON: Final = re.compile(r"我|\bmy\b")
_POINTERS: Final = frozenset({"那个", "这个", "那", "这", "它", "那些", "这些", "it", "that", "this"})
_WITHOUT_VERB: Final = frozenset({"", "是", "叫", "在", "in", "at", "on", "a", "an", "the", "be"})


@dataclass(frozen=True, slots=True)
class Correction:
    """A message that takes something back.

    Attributes:
        retracted: what no longer holds, in its words (folded).
        verb: how it did: 住, use; empty where only the value is named.
        replacement: what holds instead.
        is_slip: whether it was wrong from the start, not overtaken by events.
        topic: what the message is about.
    """

    retracted: str | None
    verb: str
    replacement: str | None
    is_slip: bool
    topic: Topic


def read_correction(content: str) -> Correction | None:
    """Returns what a message says was said wrong or has changed since; None where it corrects nothing.

    Corrections of the assistant and of other people, questions and suppositions are none.
    """
    if len(content) > _MOST_CHARS:
        return None
    folded = fold(content).strip()
    topic = read_topic(folded)
    if not _speaks_for_itself(folded, topic):
        return None
    is_slip = SLIP.search(folded) is not None
    retracted, verb, replacement = _read_parts(folded)
    if not is_slip and retracted is None and not CHANGE.search(folded):
        return None
    return Correction(retracted, verb, replacement, is_slip=is_slip, topic=topic)


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
    scaled = _scale(similarities)
    scores = [
        evidence + 0.4 * similarity if evidence >= _CERTAIN else 0.0
        for evidence, similarity in zip(
            (
                _evidence(correction, text, distance=len(earlier) - place)
                for place, text in enumerate(earlier)
            ),
            scaled,
            strict=True,
        )
    ]
    best = max(range(len(scores)), key=lambda place: (round(scores[place]), place), default=None)
    return best if best is not None and scores[best] > 0 else None


def _speaks_for_itself(folded: str, topic: Topic) -> bool:
    """Whether a message asserts something of the speaker's own, in place of something and not beside it."""
    clauses = read_clauses(folded)
    about_others = (
        not topic.persons
        and THIRD_PERSON.match(strip_opening(folded)) is not None
        and _FIRST_PERSON.search(folded) is None
    )
    return not (
        "?" in folded
        or is_task(folded)
        or FOR_OTHERS.search(folded)
        or about_others
        or not any(clause.asserted for clause in clauses)
        or any(ADDITION.search(clause.text) for clause in clauses)
    )


def _read_parts(folded: str) -> tuple[str | None, str, str | None]:
    for pattern in PAIRS:
        for sentence, _ in split_sentences(folded):
            match = pattern.search(sentence)
            if match:
                return match["retracted"].strip(), "", match["replacement"].strip()
    replacement = next(
        (match["replacement"].strip() for p in REPLACEMENT if (match := p.search(folded))), None
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
    if is_task(folded) or is_question(folded) or "?" in folded:
        return 0.0
    mine, theirs = correction.topic, read_topic(folded)
    if mine.persons and not mine.persons & theirs.persons:
        return 0.0
    if correction.retracted:
        return _retraction(correction, folded, theirs)
    kinds, same_kind = set(mine.values), bool(set(mine.values) & set(theirs.values))
    differs = same_kind or not kinds
    if theirs.persons - mine.persons or not differs or _says_the_same(correction, folded, theirs):
        return 0.0
    shared = len(mine.matters & theirs.matters) + len(mine.terms & theirs.terms)
    bare = correction.is_slip and not mine.matters and len(mine.terms) <= 1 and distance <= _SLIP_REACH
    if shared:
        return 2.0 + 0.5 * same_kind + 0.4 * min(3, shared)
    return 2.0 if bare and same_kind else 0.0


def _retraction(correction: Correction, folded: str, theirs: Topic) -> float:
    mine = correction.topic
    if not _contains(folded, correction.retracted or ""):
        return 0.0
    shared_matters = mine.matters & theirs.matters
    verb = correction.verb
    if not shared_matters and not (verb and verb[:1] in folded):
        elsewhere = mine.matters and not mine.persons
        if elsewhere or verb.split(" ")[0] not in _WITHOUT_VERB:
            return 0.0
    outside = (mine.terms & theirs.terms) - content_terms(correction.retracted or "")
    return 3.0 + 0.4 * min(3, len(outside) + len(shared_matters))


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
