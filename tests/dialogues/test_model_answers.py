import pytest

from app.dialogues.model_answers import strip_fence, strip_thinking


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        ("85", "85"),
        ("<think>60</think>85", "85"),
        ("<think>60</think><Thinking>70\n</Thinking>\n85 ", "85"),
        ("8<think>60</think>5", "85"),
        ("60, so</think>85", "85"),
        ("<think>60", ""),
        ("85<think>60", "85"),
        ("<think><think>60</think>85", "85"),
        ("a <thinker> said 85", "a <thinker> said 85"),
    ],
)
def test_thoughts_are_stripped(answer: str, rest: str) -> None:
    assert strip_thinking(answer) == rest


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("85", "85"),
        ("```\n85\n```", "85"),
        ("\n```json\n[85,\n40]\n```\n", "[85,\n40]"),
        ("~~~\n85\n~~~", "85"),
        ("````\n```\n85\n```\n````", "```\n85\n```"),
        ("see\n```\n85\n```", "see\n```\n85\n```"),
        ("```85```", "```85```"),
        ("```\n85", "```\n85"),
    ],
)
def test_a_fence_around_all_is_stripped(answer: str, inside: str) -> None:
    assert strip_fence(answer) == inside
