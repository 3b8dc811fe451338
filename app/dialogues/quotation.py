"""Messages quoted for a model as data, one line of JSON each. Pure.

Whatever a message says, its quotes and line breaks are escaped, so it can neither end the quotation nor pose
as the words around it; and `<|`, which opens the control tokens of chat models, is broken up.
"""

import json
from collections.abc import Mapping
from typing import Final

# They break lines for some readers, and JSON does not escape them.
_LINE_BREAKS: Final = {code: f"\\u{code:04x}" for code in (0x7F, 0x85, 0x2028, 0x2029)}


def quote_as_json(values: Mapping[str, object]) -> str:
    """Returns the values as one line of JSON."""
    return json.dumps(values, ensure_ascii=False).replace("<|", "< |").translate(_LINE_BREAKS)


def excerpt(text: str, *, max_chars: int) -> str:
    """Returns the text, or its beginning and its end where it is longer: what matters stands there mostly.

    Args:
        text: any.
        max_chars: of the text that is kept; the note of what is left out comes on top.
    """
    if len(text) <= max_chars:
        return text
    tail_chars = max_chars // 3
    head_chars = max_chars - tail_chars
    return f"{text[:head_chars]} …[-{len(text) - max_chars}]… {text[len(text) - tail_chars :]}"
