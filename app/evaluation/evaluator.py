"""Asks a model how much a turn of conversation is worth remembering."""

from collections.abc import Sequence
from typing import Final

from app.clients.chat_model import ChatModel
from app.errors import ProviderError
from app.evaluation.evaluator_prompt import Turn, batch_messages, evaluation_messages, instructions_of
from app.evaluation.score_reader import read_score, read_scores

# An answer takes three tokens; the rest is for models that can not but think first.
_MAX_TOKENS: Final = 2048
_MAX_TOKENS_PER_TURN: Final = 128
# Of a number that was cut off, 7 may be left of 70.
_CUT_OFF: Final = "length"


class Evaluator:
    """The judgement of a model.

    Args:
        model: closed by whoever opened it.
        prompt: instructions instead of ours; the turn is appended to them as data. None or blank: ours.
    """

    def __init__(self, model: ChatModel, *, prompt: str | None) -> None:
        self._model = model
        self._instructions = prompt

    @property
    def model_name(self) -> str:
        """As the provider names it."""
        return self._model.name

    @property
    def identity(self) -> str:
        """The same for evaluators that judge alike: by one model, by the same instructions."""
        return f"{self._model.name}\0{instructions_of(self._instructions)}"

    async def evaluate(self, user_message: str, assistant_message: str) -> int:
        """The score of a turn, 0 to 100.

        Raises:
            ProviderError: the model failed, or its answer holds no score that is clear.
        """
        turn = Turn(user_message, assistant_message)
        answer = await self._model.complete(
            evaluation_messages(turn, instructions=self._instructions), max_tokens=_MAX_TOKENS, temperature=0
        )
        if answer.finish_reason == _CUT_OFF:
            raise ProviderError("the evaluator's answer was cut off")
        score = read_score(answer.text)
        if score is None:
            # Not quoted: it may repeat what the user said.
            raise ProviderError(f"the evaluator gave no clear score ({len(answer.text)} characters)")
        return score

    async def evaluate_batch(self, turns: Sequence[Turn]) -> list[int] | None:
        """The scores of several turns by one call, in order; None where the answer does not fit the question.

        Args:
            turns: at least one.

        Raises:
            ProviderError: the model failed.
        """
        answer = await self._model.complete(
            batch_messages(turns, instructions=self._instructions),
            max_tokens=_MAX_TOKENS + _MAX_TOKENS_PER_TURN * len(turns),
            temperature=0,
        )
        return None if answer.finish_reason == _CUT_OFF else read_scores(answer.text, len(turns))
