"""RATE_LIMIT, CORS_ORIGINS and SCRUB as an operator writes them; what is wrong is named and not shown."""

from pathlib import Path

import pytest

from app.errors import SettingsError
from app.settings import load_settings


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("600/minute", (600, 60)),
        ("1/second", (1, 1)),
        (" 10000 / hour ", (10_000, 3600)),
        ("999999999/hour", (999_999_999, 3600)),
    ],
)
def test_a_limit_is_requests_in_a_time(
    written: str, read: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATE_LIMIT", written)
    assert load_settings().server.rate_limit == read


def test_origins_are_those_that_browsers_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORS_ORIGINS", "https://console.example, http://localhost:5173,http://[::1]:80")
    assert load_settings().server.cors_origins == (
        "https://console.example",
        "http://localhost:5173",
        "http://[::1]:80",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("RATE_LIMIT", value)
            for value in (
                "600",
                "0/minute",
                "-5/hour",
                "600/day",
                "x/minute",
                "600 per minute",
                "1e3/hour",
                "off",
            )
        ),
        *(
            ("CORS_ORIGINS", value)
            for value in (
                "*",
                "null",
                "console.example",
                "https://*.example",
                "https://a.example/",
                "https://a b",
            )
        ),
        ("SCRUB", "on"),
        ("SCRUB", "MASK "),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    line = str(caught.value)
    assert name in line
    assert "\n" not in line
    assert f" {value} " not in line


def test_without_them_there_is_no_limit_no_origin_and_no_scrubbing() -> None:
    settings = load_settings()
    assert settings.server.rate_limit is None
    assert settings.server.cors_origins == ()
    assert settings.record.scrub == "off"
