from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.chat_roles import reshape, rules_of

TEXT = st.text(min_size=1, max_size=8)
SYSTEM = st.lists(st.builds(lambda text: {"role": "system", "content": text}, TEXT), max_size=1)
SPOKEN = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), TEXT
    ),
    max_size=8,
)
LAST = st.builds(lambda text: [{"role": "user", "content": text}], TEXT)
PROMPTS: st.SearchStrategy[list[dict[str, str]]] = st.builds(
    lambda system, spoken, last: [*system, *spoken, *last], SYSTEM, SPOKEN, LAST
)


@given(prompt=PROMPTS, no_system=st.booleans())
def test_every_prompt_takes_turns_beginning_and_ending_with_the_user(
    prompt: list[dict[str, str]], no_system: bool
) -> None:
    rules = frozenset({"no_system"} if no_system else {"alternate"})
    shaped = reshape(prompt, rules)  # type: ignore[arg-type]
    turns = [one["role"] for one in shaped if one["role"] != "system"]
    assert turns[0] == turns[-1] == "user"
    assert all(one != other for one, other in pairwise(turns))
    assert [one["role"] for one in shaped].count("system") == (
        0 if no_system else len(prompt) - len(turns_of(prompt))
    )
    assert reshape(shaped, rules) == shaped  # type: ignore[arg-type]


def turns_of(prompt: list[dict[str, str]]) -> list[dict[str, str]]:
    return [one for one in prompt if one["role"] != "system"]


@given(prompt=PROMPTS, no_system=st.booleans())
def test_nothing_that_was_said_is_lost_or_moved(prompt: list[dict[str, str]], no_system: bool) -> None:
    before = [dict(message) for message in prompt]
    shaped = reshape(prompt, frozenset({"no_system", "alternate"} if no_system else {"alternate"}))
    assert prompt == before
    said = "\n\n".join(one["content"] for one in prompt)
    told = [one["content"] for one in shaped]
    if len(told) > 1 and "…" in told and "\n\n".join(told) != said:
        told.remove("…")
    assert "\n\n".join(told) == said


def test_nothing_is_changed_unasked() -> None:
    prompt = [{"role": role, "content": role} for role in ("system", "assistant", "user", "user")]
    assert reshape(prompt, frozenset()) == prompt


@pytest.mark.parametrize(
    ("complaint", "rules"),
    [
        ("Conversation roles must alternate user/assistant/user/assistant/...", {"alternate"}),
        (
            "After the optional system message, conversation roles must alternate user/assistant/user/…",
            {"alternate"},
        ),
        ('Error rendering prompt with jinja template: "Conversation roles must alternate"', {"alternate"}),
        ('roles must alternate between "user" and "assistant", but found multiple', {"alternate"}),
        ("System role not supported", {"no_system"}),
        ("this model does not support the system role", {"no_system"}),
        ("Only user and assistant roles are supported!", {"no_system"}),
        ("Value error, current model does not support parameter `temperature`.", set()),
        ("The system is overloaded, this region is not supported", set()),
        ("maximum context length is 4096 tokens, however the messages resulted in 5000 tokens", set()),
        ("messages must not be empty", set()),
        ("", set()),
    ],
)
def test_complaints_about_roles_are_told_from_others(complaint: str, rules: set[str]) -> None:
    assert rules_of(complaint) == rules
