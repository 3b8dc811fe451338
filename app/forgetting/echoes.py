"""Whether a reply repeats what its user has taken back since."""

import re
from typing import Final

from app.dialogues.utterances import fold

# Words of languages with blanks, and runs of those without.
_RUNS: Final = re.compile(r"[a-z0-9]+|[一-鿿]+")
_SHORTEST_WORD: Final = 3


def is_echo(reply: str, *, corrected: str, correction: str) -> bool:
    """Whether `reply` names something of `corrected` that `correction` does not name.

    "记下了：你住在北京" echoes "我住在北京", corrected by "不对，我现在住在上海": it names 北京.
    A reply that names nothing of it ("好的，记住了"), or only what still holds, is no echo.
    """
    taken_back = _names(corrected) - _names(correction)
    return bool(taken_back & _names(reply))


def _names(text: str) -> set[str]:
    """Words of at least three letters or with a digit, and pairs of neighbouring Han characters."""
    found: set[str] = set()
    for run in _RUNS.findall(fold(text)):
        if not run.isascii():
            found.update(run[place : place + 2] for place in range(len(run) - 1))
        elif len(run) >= _SHORTEST_WORD or any(character.isdigit() for character in run):
            found.add(run)
    return found
