"""Secrets and personal data in a text: keys, card numbers, Chinese ID numbers, phone numbers, e-mail. Pure.

What has a check digit is checked, so that order numbers and dates stay. Digits are read in full width, too.

Sources: ISO/IEC 7812-1 (cards: Luhn), GB 11643-1999 (ID numbers: ISO 7064, MOD 11-2), the issuers' ranges of
card numbers, and the forms of keys as their issuers document them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Literal

from app.dialogues.records import NewDialogue
from app.errors import FieldFault, InvalidInputError

ScrubMode = Literal["off", "mask", "refuse"]
PersonalKind = Literal["key", "card", "id_number", "phone", "email"]

NAMES: Final[dict[PersonalKind, str]] = {
    "key": "a secret key",
    "card": "a card number",
    "id_number": "an ID number",
    "phone": "a phone number",
    "email": "an e-mail address",
}
MARKS: Final[dict[PersonalKind, str]] = {
    "key": "[secret key]",
    "card": "[card number]",
    "id_number": "[ID number]",
    "phone": "[phone number]",
    "email": "[e-mail]",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Where something stands in a text: from `start` to before `end`."""

    kind: PersonalKind
    start: int
    end: int


class PersonalDataError(ValueError):
    """A text that may not be kept; `str()` says what it holds, and not where or which."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        names = dict.fromkeys(NAMES[one.kind] for one in findings)
        super().__init__(f"holds {' and '.join(names)}, which is not kept here (SCRUB=refuse)")


# Sign by sign, so that places in the folded text are places in the text: full width, blanks, dashes.
_FOLDED: Final = {0xFF10 + digit: 0x30 + digit for digit in range(10)} | {
    0xFF0B: 0x2B,
    0xFF08: 0x28,
    0xFF09: 0x29,
    0xFF20: 0x40,
    0xFF0E: 0x2E,
    0xFF0D: 0x2D,
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014), 0x2D),
    **dict.fromkeys((0x3000, 0x00A0, 0x2009, 0x202F), 0x20),
}

_KEY: Final = re.compile(
    r"""
    -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----[A-Za-z0-9+/=\s]{0,20000}
        (?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    | (?<![A-Za-z0-9_-])(?:
        sk-[A-Za-z0-9_-]{16,200}
        | tm_[A-Za-z0-9]{8}_[A-Za-z0-9]{43}
        | (?:AKIA|ASIA)[A-Z0-9]{16}
        | LTAI[A-Za-z0-9]{12,24}
        | AKID[A-Za-z0-9]{32}
        | AIza[A-Za-z0-9_-]{35}
        | gh[pousr]_[A-Za-z0-9]{36,255}
        | github_pat_[A-Za-z0-9_]{22,255}
        | glpat-[A-Za-z0-9_-]{20,64}
        | xox[abprs]-[A-Za-z0-9-]{10,250}
        | hf_[A-Za-z0-9]{30,64}
        | eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}
        | \d{6,12}:AA[A-Za-z0-9_-]{33}
    )(?![A-Za-z0-9_-])
    | (?i:\bbearer[ ]+)(?P<bearer>[A-Za-z0-9._~+/-]{16,2000}=*)
    | (?<=://)[^\s/:@]{1,64}:(?P<password>[^\s/:@]{1,128})(?=@)
    """,
    re.VERBOSE | re.ASCII,
)
_EMAIL: Final = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
# Digits in groups; what is one number, and of which kind, is decided by the groups.
_DIGITS: Final = re.compile(r"(?<![A-Za-z0-9_])(?<!\d\.)\(?\d[\d ()-]*[\dXx](?![A-Za-z0-9_]|\.\d)", re.ASCII)
_GROUP: Final = re.compile(r"\d+[Xx]?", re.ASCII)
_PLUS: Final = re.compile(r"(?<![A-Za-z0-9])\+$", re.ASCII)
_LONGEST_GROUPS: Final = 6

_MOBILE: Final = re.compile(r"(?:(?:00)?86)?1[3-9]\d{9}", re.ASCII)
_AREA: Final = re.compile(r"0(?:10|2\d|[3-9]\d{2})", re.ASCII)
# GB/T 2260: provinces by region.
_PROVINCES: Final = frozenset(
    str(number)
    for numbers in (range(11, 16), range(21, 24), range(31, 38), range(41, 47), range(50, 55), range(61, 66))
    for number in numbers
) | {"71", "81", "82"}
_ID_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECKS: Final = "10X98765432"
_ID_DIGITS: Final = 18
_LUHN_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
# By issuer: the range of the first four digits, and the lengths.
_ISSUERS: Final[tuple[tuple[range, frozenset[int]], ...]] = (
    (range(4000, 5000), frozenset({16})),
    (range(5100, 5600), frozenset({16})),
    (range(2221, 2721), frozenset({16})),
    (range(3400, 3500), frozenset({15})),
    (range(3700, 3800), frozenset({15})),
    (range(6200, 6300), frozenset({16, 17, 18, 19})),
    (range(6011, 6012), frozenset({16})),
    (range(6440, 6600), frozenset({16})),
    (range(3528, 3590), frozenset({16})),
    (range(3600, 3700), frozenset({14})),
    (range(3800, 3900), frozenset({14})),
    (range(3000, 3060), frozenset({14})),
)
_CARD_GROUPS: Final = frozenset({(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4), (6, 10), (6, 13)})
_ID_GROUPS: Final = frozenset({(18,), (6, 8, 4)})
_MOBILE_GROUPS: Final = frozenset({(11,), (13,), (15,), (3, 4, 4), (2, 11), (4, 11), (2, 3, 4, 4)})
_LANDLINE_GROUPS: Final = frozenset({(3, 7), (3, 8), (4, 7), (4, 8)})
_NORTH_AMERICAN: Final = frozenset({(3, 3, 4), (1, 3, 3, 4)})
_GROUPS: Final = (
    _CARD_GROUPS
    | _ID_GROUPS
    | _MOBILE_GROUPS
    | _LANDLINE_GROUPS
    | _NORTH_AMERICAN
    | {(length,) for length in range(11, 20)}
)
# ITU-T E.164 takes 15; what is shorter than 10 after a plus is rather a sum.
_E164_DIGITS: Final = range(10, 16)


def find_personal(text: str) -> list[Finding]:
    """All that should not be kept, in order, nothing twice."""
    folded = text.translate(_FOLDED)
    found: list[Finding] = []
    end = 0
    # Of two that begin at one place, the one that is named first here.
    candidates = [*_find_keys(folded), *_find_emails(folded), *_find_numbers(folded)]
    for one in sorted(candidates, key=lambda one: one.start):
        if one.start >= end:
            found.append(one)
            end = one.end
    return found


def mask_personal(text: str, findings: Sequence[Finding]) -> str:
    """The text with a mark in the place of each finding.

    Args:
        text: in which they were found.
        findings: in order, apart from each other.
    """
    parts, end = [], 0
    for one in findings:
        parts += [text[end : one.start], MARKS[one.kind]]
        end = one.end
    return "".join([*parts, text[end:]])


def scrub_text(text: str, mode: ScrubMode) -> str:
    """The text as it may be kept.

    Raises:
        PersonalDataError: it may not, and the mode is `refuse`.
    """
    if mode == "off":
        return text
    findings = find_personal(text)
    if findings and mode == "refuse":
        raise PersonalDataError(findings)
    return mask_personal(text, findings) if findings else text


def scrub_dialogue(new: NewDialogue, mode: ScrubMode) -> NewDialogue:
    """The message as it may be kept, its speaker's name included.

    Raises:
        PersonalDataError: it may not, and the mode is `refuse`.
    """
    if mode == "off":
        return new
    name = new.sender_name and scrub_text(new.sender_name, mode)
    return replace(new, content=scrub_text(new.content, mode), sender_name=name)


def scrub_dialogues(
    new: Sequence[NewDialogue], mode: ScrubMode, *, point: Callable[[int], str]
) -> Sequence[NewDialogue]:
    """The messages as they may be kept.

    Args:
        new: the messages.
        mode: what is done with what may not be kept.
        point: where the message at an index stands in a request, as a JSON pointer.

    Raises:
        InvalidInputError: some may not, and the mode is `refuse`; it names each.
    """
    if mode == "off":
        return new
    kept: list[NewDialogue] = []
    faults: list[FieldFault] = []
    for index, one in enumerate(new):
        try:
            kept.append(scrub_dialogue(one, mode))
        except PersonalDataError as error:
            faults.append(FieldFault(point(index), str(error)))
    if faults:
        raise InvalidInputError(faults)
    return kept


def _find_keys(folded: str) -> Iterator[Finding]:
    for match in _KEY.finditer(folded):
        group = match.lastgroup or 0
        yield Finding("key", match.start(group), match.end(group))


def _find_emails(folded: str) -> Iterator[Finding]:
    if "@" in folded:
        for match in _EMAIL.finditer(folded):
            yield Finding("email", match.start(), match.end())


def _find_numbers(folded: str) -> Iterator[Finding]:
    for match in _DIGITS.finditer(folded):
        groups = [(one.start() + match.start(), one[0]) for one in _GROUP.finditer(match[0])]
        lengths = [len(part) for _, part in groups]
        first = 0
        while first < len(groups):
            taken = 1
            begin = groups[first][0]
            has_plus = "+" in folded[max(0, begin - 2) : begin]
            for count in range(min(_LONGEST_GROUPS, len(groups) - first), 0, -1):
                if not has_plus and tuple(lengths[first : first + count]) not in _GROUPS:
                    continue
                chosen = groups[first : first + count]
                start, end = chosen[0][0], chosen[-1][0] + len(chosen[-1][1])
                is_open = folded[start - 1 : start] == "(" and ")" in folded[start:end]
                start -= is_open
                is_abroad = bool(_PLUS.search(folded[max(0, start - 2) : start]))
                kind = _classify([part for _, part in chosen], is_abroad=is_abroad)
                if kind is not None:
                    yield Finding(kind, start - is_abroad, end)
                    taken = count
                    break
            first += taken


def _classify(groups: list[str], *, is_abroad: bool) -> PersonalKind | None:
    """What some groups of digits are together; `is_abroad`: a plus stands before them."""
    digits = "".join(groups)
    lengths = tuple(map(len, groups))
    if lengths in _ID_GROUPS and _is_id_number(digits):
        return "id_number"
    if digits[-1] in "Xx":
        return None
    if (len(groups) == 1 or lengths in _CARD_GROUPS) and _is_card(digits):
        return "card"
    return "phone" if _is_phone(groups, digits, lengths, is_abroad=is_abroad) else None


def _is_phone(groups: list[str], digits: str, lengths: tuple[int, ...], *, is_abroad: bool) -> bool:
    if lengths in _MOBILE_GROUPS and _MOBILE.fullmatch(digits):
        return True
    if lengths in _LANDLINE_GROUPS and _AREA.fullmatch(groups[0]):
        return True
    if is_abroad:
        return digits[0] != "0" and len(digits) in _E164_DIGITS
    if lengths in _NORTH_AMERICAN and digits[:-10] in {"", "1"}:
        area, exchange = groups[-3:-1]
        # 400 and 800 are everybody's hotlines.
        return area[0] not in "01" and exchange[0] not in "01" and area[1:] != "00"
    return False


def _is_card(digits: str) -> bool:
    first = int(digits[:4])
    return any(first in leading and len(digits) in lengths for leading, lengths in _ISSUERS) and is_luhn(
        digits
    )


def is_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others. Source: ISO/IEC 7812-1, annex B."""
    odd = sum(int(digit) for digit in digits[-1::-2])
    return (odd + sum(_LUHN_DOUBLED[int(digit)] for digit in digits[-2::-2])) % 10 == 0


def id_check_sign(digits: str) -> str:
    """The 18th sign of an ID number, of its 17 digits. Source: GB 11643-1999."""
    total = sum(int(digit) * weight for digit, weight in zip(digits, _ID_WEIGHTS, strict=True))
    return _ID_CHECKS[total % 11]


def _is_id_number(text: str) -> bool:
    digits = text[:17]
    if not digits.isdigit() or digits[:2] not in _PROVINCES or text[17].upper() != id_check_sign(digits):
        return False
    try:
        born = date(int(digits[6:10]), int(digits[10:12]), int(digits[12:14]))
    except ValueError:
        return False
    return born.year >= 1900  # noqa: PLR2004
