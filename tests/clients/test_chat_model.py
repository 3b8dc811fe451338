import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.clients.chat_model import ChatModel, ChatStream, Completion
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
    SettingsError,
)
from tests.doubles.chat_fixtures import ChatProvider

ASKED = [{"role": "user", "content": "你好"}]
REPLY = "好的，我记下了：👨‍👩‍👧 周五见！"


@asynccontextmanager
async def opened(provider: ChatProvider, **options: Any) -> AsyncIterator[ChatModel]:
    defaults: dict[str, Any] = {
        "base_url": provider.base_url,
        "api_key": provider.key,
        "model": provider.model,
        "timeout_s": 20.0,
    }
    model = ChatModel(**(defaults | options))
    try:
        yield model
    finally:
        await model.aclose()


@pytest.fixture
async def model(chat_provider: ChatProvider) -> AsyncIterator[ChatModel]:
    async with opened(chat_provider) as model:
        yield model


async def streamed(model: ChatModel) -> tuple[list[str], Completion]:
    async with model.stream(ASKED) as answer:
        texts = [text async for text in answer]
        return texts, answer.completion


async def collect(answer: ChatStream, texts: list[str]) -> None:
    async for text in answer:
        texts.append(text)  # noqa: PERF401 - what came before an error is looked at


async def test_a_whole_answer_with_its_usage(chat_provider: ChatProvider, model: ChatModel) -> None:
    chat_provider.control({"reply": REPLY})
    answer = await model.complete(ASKED, max_tokens=50, temperature=0)
    assert answer == Completion(REPLY, len("你好"), len(REPLY), "stop")
    body = chat_provider.requests()["bodies"][0]
    assert body == {"model": chat_provider.model, "messages": ASKED, "max_tokens": 50, "temperature": 0}


async def test_a_streamed_answer_is_the_same(chat_provider: ChatProvider, model: ChatModel) -> None:
    chat_provider.control({"reply": REPLY})
    texts, answer = await streamed(model)
    assert answer == Completion(REPLY, len("你好"), len(REPLY), "stop")
    assert "".join(texts) == REPLY
    assert len(texts) > 2
    assert all(texts)
    assert chat_provider.requests()["bodies"][0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "form",
    [
        {"crlf": True},
        {"comments": True},
        {"chunk_bytes": 1},
        {"chunk_bytes": 7, "crlf": True, "comments": True},
        {"piece_chars": 1, "think": "想一想，<b>60</b>？"},
        {"piece_chars": 3, "think": "想一想"},
        {"piece_chars": 100, "think": "想一想"},
        {"reasoning": "想一想，60？"},
        {"no_done": True},
        {"finish": None},
    ],
    ids=str,
)
async def test_however_a_stream_comes_its_text_is_the_answer(
    chat_provider: ChatProvider, model: ChatModel, form: dict[str, Any]
) -> None:
    chat_provider.control({"reply": REPLY, **form})
    texts, answer = await streamed(model)
    assert "".join(texts) == answer.text == REPLY
    assert answer.prompt_tokens == 2


@pytest.mark.parametrize("form", [{"think": "想一想，60？"}, {"reasoning": "想一想，60？"}], ids=str)
async def test_thoughts_are_no_part_of_a_whole_answer(
    chat_provider: ChatProvider, model: ChatModel, form: dict[str, Any]
) -> None:
    chat_provider.control({"reply": REPLY, **form})
    assert (await model.complete(ASKED)).text == REPLY


async def test_a_provider_that_does_not_count(chat_provider: ChatProvider, model: ChatModel) -> None:
    chat_provider.control({"reply": REPLY, "no_usage": True, "times": 2})
    assert await model.complete(ASKED) == Completion(REPLY, None, None, "stop")
    assert (await streamed(model))[1] == Completion(REPLY, None, None, "stop")


@pytest.mark.parametrize("form", [{"reasoning": "那么 60？"}, {"think": "那么 60？"}], ids=str)
async def test_an_empty_answer_is_an_error_and_never_the_thoughts(
    chat_provider: ChatProvider, model: ChatModel, form: dict[str, Any]
) -> None:
    chat_provider.control({"reply": " \n", "empty": "reasoning" in form, "times": None, **form})
    with pytest.raises(ProviderError, match="empty answer"):
        await model.complete(ASKED)
    with pytest.raises(ProviderError, match="empty answer"):
        await streamed(model)
    assert chat_provider.requests()["count"] == 2


@pytest.mark.parametrize(
    ("rule", "error", "calls"),
    [
        ({"status": 400, "body": {"code": 20015, "message": "prompt too long"}}, ProviderRejectedError, 1),
        ({"status": 401, "body": "Invalid token"}, ProviderDeniedError, 1),
        ({"status": 402, "body": {"error": {"message": "Insufficient Balance"}}}, ProviderDeniedError, 1),
        ({"status": 403, "body": {}}, ProviderDeniedError, 1),
        ({"status": 404, "text": "404 page not found"}, ProviderDeniedError, 1),
        ({"status": 400, "body": {"code": 20012, "message": "Model?"}}, ProviderDeniedError, 1),
        ({"status": 400, "body": {"error": {"message": "Model Not Exist"}}}, ProviderDeniedError, 1),
        ({"status": 429, "body": {"message": "TPM limit reached.", "data": None}}, ProviderBusyError, 1),
        ({"status": 500, "text": "oh"}, ProviderBusyError, 2),
        ({"status": 503, "body": {"code": 50505, "message": "busy"}}, ProviderBusyError, 2),
        ({"status": 503, "headers": {"retry-after": "7"}}, ProviderBusyError, 1),
        ({"status": 504}, ProviderTimeoutError, 1),
        ({"hang_up": True}, ProviderBusyError, 2),
        ({"garbage": True}, ProviderError, 1),
        ({"error": {"error": {"message": "overloaded", "code": 503}}, "cut_after": 0}, ProviderBusyError, 2),
        ({"error": {"code": 50505, "message": "busy", "data": None}, "cut_after": 1}, ProviderBusyError, 2),
    ],
    ids=str,
)
async def test_every_failure_is_one_of_our_errors(
    chat_provider: ChatProvider,
    model: ChatModel,
    rule: dict[str, Any],
    error: type[ProviderError],
    calls: int,
) -> None:
    chat_provider.control({**rule, "times": None})
    with pytest.raises(error) as caught:
        await streamed(model)
    assert type(caught.value) is error
    assert chat_provider.requests()["count"] == calls


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"status": 500}, ProviderBusyError),
        ({"status": 413, "text": "too large"}, ProviderRejectedError),
        ({"error": {"error": {"message": "no", "code": "429"}}}, ProviderBusyError),
        ({"error": {"id": 1}}, ProviderError),
        ({"error": {"choices": []}}, ProviderError),
        ({"garbage": True}, ProviderError),
        ({"cut_after": 0}, ProviderBusyError),
    ],
    ids=str,
)
async def test_failures_of_a_whole_answer(
    chat_provider: ChatProvider, model: ChatModel, rule: dict[str, Any], error: type[ProviderError]
) -> None:
    chat_provider.control({**rule, "times": None})
    with pytest.raises(error) as caught:
        await model.complete(ASKED)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"hang_up": True},
        {"cut_after": 1},
        {"error": {"error": {"message": "overloaded", "code": 500}}, "cut_after": 1},
        {"no_done": True, "finish": None, "empty": True},
    ],
    ids=str,
)
async def test_what_fails_before_the_first_text_is_asked_once_more(
    chat_provider: ChatProvider, model: ChatModel, fault: dict[str, Any]
) -> None:
    chat_provider.control(fault, {"reply": REPLY})
    texts, _ = await streamed(model)
    assert "".join(texts) == REPLY
    assert chat_provider.requests()["count"] == 2


@pytest.mark.parametrize(
    "fault",
    [
        {"cut_after": 3},
        {"no_done": True, "finish": None},
        {"error": {"error": {"message": "overloaded", "code": 503}}, "cut_after": 3},
    ],
    ids=str,
)
async def test_what_fails_after_the_first_text_is_not_asked_again(
    chat_provider: ChatProvider, model: ChatModel, fault: dict[str, Any]
) -> None:
    chat_provider.control({"reply": REPLY, "drip_s": 0.02, **fault})
    texts: list[str] = []
    async with model.stream(ASKED) as answer:
        with pytest.raises(ProviderBusyError):
            await collect(answer, texts)
        with pytest.raises(RuntimeError):
            _ = answer.completion
    assert texts
    assert REPLY.startswith("".join(texts))
    assert chat_provider.requests()["count"] == 1


@pytest.mark.parametrize("rule", [{"delay_s": 5}, {"drip_s": 5}], ids=str)
async def test_silence_is_a_timeout(chat_provider: ChatProvider, rule: dict[str, Any]) -> None:
    chat_provider.control({"times": None, **rule})
    async with opened(chat_provider, timeout_s=0.3) as model:
        with pytest.raises(ProviderTimeoutError):
            await streamed(model)


async def test_a_late_whole_answer_is_a_timeout(chat_provider: ChatProvider) -> None:
    chat_provider.control({"delay_s": 5})
    async with opened(chat_provider, timeout_s=0.3) as model:
        with pytest.raises(ProviderTimeoutError):
            await model.complete(ASKED)


async def test_silence_in_the_middle_is_a_timeout_long_before_the_deadline(
    chat_provider: ChatProvider,
) -> None:
    chat_provider.control({"reply": REPLY, "drip_s": 2})
    async with opened(chat_provider, timeout_s=600, idle_timeout_s=0.3) as model:
        with pytest.raises(ProviderTimeoutError):
            await streamed(model)


async def test_a_stream_that_never_ends_is_a_timeout(chat_provider: ChatProvider) -> None:
    chat_provider.control({"reply": REPLY * 100, "drip_s": 0.05, "comments": True})
    async with opened(chat_provider, timeout_s=0.8) as model, model.stream(ASKED) as answer:
        with pytest.raises(ProviderTimeoutError):
            [text async for text in answer]


async def test_who_leaves_a_stream_hangs_up(chat_provider: ChatProvider, model: ChatModel) -> None:
    chat_provider.control({"reply": REPLY * 1000, "drip_s": 0.01})
    async with model.stream(ASKED) as answer:
        assert await anext(answer)
    for _ in range(500):
        if chat_provider.requests()["in_flight"] == 0:
            break
        await asyncio.sleep(0.02)
    assert chat_provider.requests()["statuses"] == [0]
    assert (await model.complete(ASKED)).text


async def test_a_cancelled_call_leaves_the_model_usable(
    chat_provider: ChatProvider, model: ChatModel
) -> None:
    chat_provider.control({"delay_s": 1})
    call = asyncio.create_task(streamed(model))
    while not chat_provider.requests()["count"]:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await streamed(model))[1].text


@pytest.mark.parametrize("field", ["stream_options", "temperature", "max_tokens", "enable_thinking"])
async def test_an_optional_field_that_is_refused_is_left_out(chat_provider: ChatProvider, field: str) -> None:
    chat_provider.control({"refuse": [field], "times": None})
    async with opened(chat_provider, enable_thinking=False) as model:
        async with model.stream(ASKED, max_tokens=9, temperature=0) as answer:
            assert [text async for text in answer]
        bodies = chat_provider.requests()["bodies"]
        assert [field in body for body in bodies] == [True, False]
        assert bodies[0].keys() - bodies[1].keys() == {field}
        async with model.stream(ASKED, max_tokens=9, temperature=0) as answer:
            assert [text async for text in answer]
        # How many tokens are too many depends on the prompt; the rest is known now.
        assert len(chat_provider.requests()["bodies"]) == (4 if field == "max_tokens" else 3)


async def test_all_optional_fields_may_be_refused(chat_provider: ChatProvider) -> None:
    chat_provider.control({"refuse": ["enable_thinking", "temperature"], "times": None})
    async with opened(chat_provider, enable_thinking=True) as model:
        assert (await model.complete(ASKED, temperature=0)).text


@pytest.mark.parametrize("strict", [True, "no_system"])
async def test_a_template_that_wants_turns_gets_them_from_then_on(
    chat_provider: ChatProvider, strict: object
) -> None:
    chat_provider.control({"strict_roles": strict, "times": None})
    roles = ("system", "assistant", "user", "user", "assistant", "user", "user")
    prompt = [{"role": role, "content": f"{role} {place}"} for place, role in enumerate(roles)]
    async with opened(chat_provider) as model:
        # Those that were under way when the first was refused are asked again, too.
        answers = await asyncio.gather(*(model.complete(prompt) for _ in range(4)))
        assert all(answer.text for answer in answers)
        asked = chat_provider.requests()["count"]
        async with model.stream(prompt) as answer:
            assert [text async for text in answer]
        seen = chat_provider.requests()
        assert seen["count"] == asked + 1
        assert seen["statuses"].count(200) == 5
        told = "\n\n".join(one["content"] for one in seen["bodies"][-1]["messages"])
        assert [line for line in told.split("\n\n") if line != "…"] == [one["content"] for one in prompt]


async def test_thinking_is_not_mentioned_unless_it_is_set(
    chat_provider: ChatProvider, model: ChatModel
) -> None:
    await model.complete(ASKED)
    assert "enable_thinking" not in chat_provider.requests()["bodies"][0]


async def test_a_rate_limit_stops_all_calls_for_a_while(chat_provider: ChatProvider) -> None:
    now_s = 1000.0
    async with opened(chat_provider, monotonic=lambda: now_s) as model:
        chat_provider.control({"status": 429, "headers": {"retry-after": "15"}})
        for _ in range(3):
            with pytest.raises(ProviderBusyError) as caught:
                await model.complete(ASKED)
            assert caught.value.retry_after_s == 15
        assert chat_provider.requests()["count"] == 1
        now_s += 15
        assert (await model.complete(ASKED)).text


async def test_who_is_patient_waits_a_rate_limit_out(chat_provider: ChatProvider) -> None:
    chat_provider.control({"status": 429, "headers": {"retry-after": "1"}})
    async with opened(chat_provider, rate_patience_s=20.0) as model:
        first = asyncio.create_task(model.complete(ASKED))
        await asyncio.sleep(0.5)
        # Those who come while the gate is closed wait at it, and do not ask the provider meanwhile.
        others = [asyncio.create_task(model.complete(ASKED)) for _ in range(3)]
        answers = await asyncio.gather(first, *others)
        assert all(answer.text for answer in answers)
        assert chat_provider.requests()["count"] == 5


async def test_patience_ends_before_a_long_limit(chat_provider: ChatProvider) -> None:
    chat_provider.control({"status": 429, "headers": {"retry-after": "30"}})
    async with opened(chat_provider, rate_patience_s=20.0) as model:
        for _ in range(2):
            with pytest.raises(ProviderBusyError) as caught:
                await model.complete(ASKED)
            assert caught.value.retry_after_s == pytest.approx(30, abs=20)
        assert chat_provider.requests()["count"] == 1


async def test_what_is_refused_to_one_user_is_not_refused_to_all(
    chat_provider: ChatProvider, model: ChatModel
) -> None:
    chat_provider.control({"status": 403, "body": {"message": "inappropriate content"}})
    with pytest.raises(ProviderDeniedError):
        await model.complete(ASKED)
    assert (await model.complete(ASKED)).text


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 401, "text": f"no such key: {ChatProvider.key}"},
        {"error": {"error": {"message": f"no such key: {ChatProvider.key}"}}, "cut_after": 0},
    ],
    ids=["status", "in stream"],
)
async def test_the_key_is_in_no_error_and_no_log(
    chat_provider: ChatProvider,
    model: ChatModel,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    rule: dict[str, Any],
) -> None:
    chat_provider.control({**rule, "times": None})
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError, match="no such key") as caught:
        await streamed(model)
    shown = f"{caught.value!r} {caplog.text} {capsys.readouterr()}"
    assert ChatProvider.key not in shown
    assert "no such key" in shown
    assert chat_provider.requests()["authorizations"][0] == f"Bearer {ChatProvider.key}"


async def test_nobody_is_there(chat_provider: ChatProvider) -> None:
    async with opened(chat_provider, base_url="http://127.0.0.1:9/v1") as model:
        with pytest.raises(ProviderBusyError, match="cannot be reached"):
            await model.complete(ASKED)


async def test_the_whole_address_is_taken_too(chat_provider: ChatProvider) -> None:
    async with opened(chat_provider, base_url=f"{chat_provider.base_url}/chat/completions/") as model:
        assert (await model.complete(ASKED)).text


def test_settings_that_can_not_be_used_are_named() -> None:
    with pytest.raises(SettingsError, match=r"^EVALUATION_BASE_URL"):
        ChatModel(base_url="x", api_key=None, model="m", timeout_s=1, setting="EVALUATION")
