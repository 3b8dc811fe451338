"""A secret stays out of the log, in whatever place of an event it stands."""

import subprocess
import sys
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from app.telemetry import _KnownSecrets, mask_value

SECRET = "aVerySecretKey0123456789"
carriers = st.sampled_from(
    [
        f"Bearer {SECRET}",
        f"bearer  {SECRET}",
        f"sk-{SECRET}",
        f"tm_abcDEF12_{SECRET}",
        f"postgresql://bot:{SECRET}@db/memory",
    ]
)
texts = st.builds("{} {} {}".format, st.text("ab你 ", max_size=5), carriers, st.text("ab你 ", max_size=5))
leaves = texts | texts.map(RuntimeError) | texts.map(str.encode) | st.none() | st.integers() | st.floats()
places = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)

SAY_IT_EVERYWHERE = f"""
import logging
from app.telemetry import configure_logging, get_logger

configure_logging(level="DEBUG", json_lines=JSON_LINES)
secret = "Bearer {SECRET}"
log = get_logger("test")
log.warning("event " + secret, text=secret, error=ValueError(secret), headers={{"Authorization": [secret]}})
logging.getLogger("library").warning("%s %r", secret, {{"key": secret}})
try:
    raise ValueError(secret)
except ValueError:
    log.exception("failed")
    logging.getLogger("library").exception("failed")
"""


@given(places)
def test_a_secret_is_masked_however_deep_it_stands(value: Any) -> None:
    assert SECRET not in repr(mask_value(value))


@given(st.none() | st.booleans() | st.integers() | st.text("ab你 ", max_size=9))
def test_what_holds_no_secret_is_left_as_it_is(value: Any) -> None:
    assert mask_value({"a": [value]}) == {"a": [value]}


def test_no_line_of_the_log_shows_a_secret() -> None:
    for json_lines in ("True", "False"):
        script = SAY_IT_EVERYWHERE.replace("JSON_LINES", json_lines)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stderr.count("***") >= 7
        assert SECRET not in done.stderr


@given(
    st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=8), min_size=1),
    st.text("ab你 ,;=/", max_size=9),
    st.text("ab你 ,;=/", max_size=9),
)
def test_a_known_secret_is_masked_whatever_it_looks_like(secrets: list[str], before: str, after: str) -> None:
    known = _KnownSecrets()
    known.add(secrets[:1])
    known.add(secrets)
    for secret in secrets:
        for form in (secret, quote(secret, safe="")):
            masked = known.mask(f"{before}{form}{after}")
            assert "***" in masked
            assert secret not in masked.replace("***", "")


def test_what_is_short_is_no_secret() -> None:
    known = _KnownSecrets()
    known.add(["", "key-a", "a"])
    assert known.mask("a key-a") == "a key-a"
