from datetime import UTC, datetime

import httpx
import pytest

from app.clients.http import JsonClient, ProviderFault, read_fault, read_retry_after_s
from app.errors import SettingsError

NOW = datetime(2024, 1, 16, 8, 0, 0, tzinfo=UTC)
KEY = "abcdefgh/12345678.zhipu"  # of no form that is known to be a secret


def fault(body: bytes, status: int = 400, **headers: str) -> ProviderFault:
    return read_fault(status, httpx.Headers(headers), body, secret=KEY, now=NOW, payload={})


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b'{"code":20015,"message":"bad parameter","data":null}', "20015", "bad parameter"),
        (b'{"error":{"code":"model_not_found","message":"no model"}}', "model_not_found", "no model"),
        (b'{"error":"no model"}', "", "no model"),
        (b'{"detail":[{"msg":"too long","input":"private words"}]}', "", "too long"),
        (b'"Api key is invalid"', "", "Api key is invalid"),
        (b"404 page not found", "", "404 page not found"),
        (b"<html><title>502</title>\r\n<p>Bad\x00 Gateway</p></html>", "", "502   Bad   Gateway"),
        (b"", "", ""),
        (b"\xff\xfe", "", "\ufffd\ufffd"),
        (b"[]", "", ""),
        (b"null", "", ""),
    ],
)
def test_a_reason_is_found_in_every_shape(body: bytes, code: str, message: str) -> None:
    read = fault(body)
    assert (read.code, " ".join(read.message.split())) == (code, " ".join(message.split()))
    assert "\n" not in str(read)


def test_a_long_reason_is_quoted_in_part() -> None:
    assert len(fault(b"x" * 100_000).message) == 200


def test_the_key_is_masked_wherever_it_is_echoed() -> None:
    body = f'{{"code": "{KEY}", "message": "wrong key {KEY} or Bearer {KEY}"}}'.encode()
    read = fault(body, 401, **{"x-request-id": KEY})
    assert KEY not in repr(read)
    assert "abcdefgh" not in str(read)


def test_the_trace_of_the_provider_is_quoted() -> None:
    assert "ti_42" in str(fault(b"", 500, **{"x-siliconcloud-trace-id": "ti_42"}))


@pytest.mark.parametrize(
    ("value", "pause_s"),
    [
        ("15", 15),
        ("0.5", 1),
        ("0", 1),
        ("-3", 1),
        ("1e9", 3600),
        ("Tue, 16 Jan 2024 08:00:30 GMT", 30),
        ("Tue, 16 Jan 2024 07:00:00 GMT", 1),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, pause_s: float | None) -> None:
    assert read_retry_after_s(value, now=NOW) == pause_s


@pytest.mark.parametrize(
    ("base_url", "key"),
    [
        ("https://example.org:port", None),
        ("ftp://example.org", None),
        ("https://", None),
        ("https://example.org", "schlüssel"),
        ("https://example.org", "two words"),
        ("https://example.org", "line\nbreak"),
        ("https://example.org", ""),
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(base_url: str, key: str | None) -> None:
    with pytest.raises(SettingsError, match=r"^EMBEDDING_") as caught:
        JsonClient(base_url=base_url, api_key=key, setting="EMBEDDING")
    assert key is None or not key or key not in str(caught.value)
