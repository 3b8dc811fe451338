"""The models that chat, compress, judge and rerank, opened as the settings have it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from app.clients.chat_model import ChatModel, ModelUse
from app.clients.reranker import Reranker
from app.errors import SettingsError
from app.evaluation.evaluator import Evaluator
from app.settings import EvaluationSettings, Settings
from app.telemetry import Metrics

SILICONFLOW: Final = "https://api.siliconflow.cn/v1"


@dataclass(frozen=True)
class Models:
    """None where none is configured, or evaluation is switched off."""

    chat: ChatModel | None
    summary: ChatModel | None
    evaluator: Evaluator | None
    reranker: Reranker | None


@asynccontextmanager
async def open_models(settings: Settings, metrics: Metrics) -> AsyncIterator[Models]:
    """Open the models that are set, and close them in the end; their calls are counted.

    Raises:
        SettingsError: a URL, a key or the file of the prompt cannot be used.
    """
    chat, judge = settings.chat, settings.evaluation
    chat_url = chat.base_url or (SILICONFLOW if chat.api_key else None)
    async with AsyncExitStack() as stack:

        def open_model(
            name: str | None,
            url: str | None,
            *,
            api_key: SecretStr | None,
            timeout_s: float,
            setting: str,
            use: ModelUse,
            rate_patience_s: float = 0.0,
        ) -> ChatModel | None:
            if name is None or url is None:
                return None
            model = ChatModel(
                base_url=url,
                api_key=api_key.get_secret_value() if api_key else None,
                model=name,
                timeout_s=timeout_s,
                setting=setting,
                use=use,
                metrics=metrics,
                rate_patience_s=rate_patience_s,
            )
            stack.push_async_callback(model.aclose)
            return model

        def open_of_chat(
            name: str | None, *, use: ModelUse, rate_patience_s: float = 0.0
        ) -> ChatModel | None:
            return open_model(
                name,
                chat_url,
                api_key=chat.api_key,
                timeout_s=chat.timeout_s,
                setting="CHAT",
                use=use,
                rate_patience_s=rate_patience_s,
            )

        judging = None
        # Without memory there is nothing to keep the worthless out of. Source: the specification, 7.5.1.
        if judge.enabled and settings.recall.enabled:
            has_endpoint = judge.base_url is not None or judge.api_key is not None
            judging = open_model(
                _evaluator_name(settings, has_endpoint=has_endpoint),
                judge.base_url or (SILICONFLOW if has_endpoint else chat_url),
                api_key=judge.api_key if has_endpoint else chat.api_key,
                timeout_s=judge.timeout_s,
                setting="EVALUATION",
                use="evaluation",
            )
        reranker = _open_reranker(settings, metrics)
        if reranker is not None:
            stack.push_async_callback(reranker.aclose)
        yield Models(
            # Somebody waits for the answer: some seconds are better than an error. The background comes back.
            chat=open_of_chat(chat.model, use="chat", rate_patience_s=chat.timeout_s / 3),
            summary=open_of_chat(settings.tiers.summary_model or chat.model, use="summary"),
            evaluator=Evaluator(judging, prompt=_read_prompt(judge)) if judging else None,
            reranker=reranker,
        )


def _open_reranker(settings: Settings, metrics: Metrics) -> Reranker | None:
    """With neither URL nor key of its own it is asked of the service that embeds."""
    rerank, embedding = settings.rerank, settings.embedding
    if not rerank.model:
        return None
    where = rerank if rerank.base_url is not None or rerank.api_key is not None else embedding
    return Reranker(
        base_url=where.base_url or SILICONFLOW,
        api_key=where.api_key.get_secret_value() if where.api_key else None,
        model=rerank.model,
        timeout_s=rerank.timeout_s,
        metrics=metrics,
    )


def _evaluator_name(settings: Settings, *, has_endpoint: bool) -> str | None:
    """The default is a model of SiliconFlow; another service of the chat model has the chat model only."""
    is_siliconflow = settings.chat.base_url in {None, SILICONFLOW}
    if has_endpoint or is_siliconflow or settings.evaluation.is_model_given:
        return settings.evaluation.model
    return settings.chat.model


def _read_prompt(settings: EvaluationSettings) -> str | None:
    """The text of EVALUATION_PROMPT, or of the file that it names."""
    given = settings.prompt
    if given is None or "\n" in given:
        return given
    try:
        path = Path(given)
        return path.read_text(encoding="utf-8-sig") if path.is_file() else given
    except UnicodeDecodeError:
        raise SettingsError(f"Wrong setting: EVALUATION_PROMPT {given} is not text in UTF-8") from None
    except (OSError, ValueError) as error:
        # A text may be longer than any path.
        if isinstance(error, PermissionError):
            raise SettingsError(f"Wrong setting: EVALUATION_PROMPT {given} cannot be read") from None
        return given
