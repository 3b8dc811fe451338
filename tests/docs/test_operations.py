"""Alert rules, dashboard and runbook, held against the metrics of a service that runs."""

import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import LiveFactory
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, search
from tests.promql import ExpressionError, Matcher, Selector, read_expression
from tests.talk import asked, chat_settings, say

OPERATIONS = Path(__file__).parents[2] / "docs/operations"
PAGE = OPERATIONS.with_suffix(".md").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((OPERATIONS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((OPERATIONS / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What Prometheus itself adds to a scrape.
OF_THE_SCRAPE = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate"}}

Series = dict[str, list[dict[str, str]]]


def expressions() -> list[str]:
    of_rules = [rule["expr"] for rule in RULES]
    of_panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return [*of_rules, *of_panels, *(note["expr"] for note in DASHBOARD["annotations"]["list"])]


@pytest.fixture
async def series(serve: LiveFactory, chat_provider: ChatProvider, tmp_path: Path) -> Series:
    """The samples of a service that has done a bit of everything: their labels, by name."""
    settings = chat_settings(chat_provider, database_url=None, data_dir=tmp_path / "data")
    async with serve(**settings) as live:
        await add(live, "我的订单号是ORD123456", wait=True)
        await search(live, "订单号")
        await say(live, "我的订单号是多少？")
        chat_provider.control({"only": "chat", "status": 500, "times": None})
        assert (await live.client.post("/chat", json=asked("再说一次"))).status_code == 502
        for path in ("/health/ready", "/metrics"):
            assert (await live.client.get(path)).status_code == 200
        text = (await live.client.get("/metrics")).text
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


def may_match(matcher: Matcher, values: set[str]) -> bool:
    """Whether the matcher is about values that there are, each alternative of a pattern for itself."""
    if "$" in matcher.value or matcher.label == "job":
        return True
    if matcher.label == "status":
        values = {str(int(status)) for status in HTTPStatus}
    wanted = matcher.value.split("|") if "~" in matcher.operator else [re.escape(matcher.value)]
    return all(any(re.fullmatch(one, value) for value in values) for one in wanted)


def check_selector(selector: Selector, series: Series) -> None:
    if selector.metric in OF_THE_SCRAPE:
        assert {matcher.label for matcher in selector.matchers} <= OF_THE_SCRAPE[selector.metric]
        return
    assert selector.metric in series, f"no metric {selector.metric}"
    for matcher in selector.matchers:
        values = {labels.get(matcher.label, "") for labels in series[selector.metric]} - {""}
        assert values or matcher.label == "instance", f"{selector.metric} has no label {matcher.label}"
        assert may_match(matcher, values), f"{selector.metric}: nothing matches {matcher}"


async def test_every_expression_is_about_metrics_and_labels_that_there_are(series: Series) -> None:
    assert len(expressions()) > 50
    for text in expressions():
        expression = read_expression(text)
        assert expression.selectors, text
        for selector in expression.selectors:
            check_selector(selector, series)
        for labels, selectors in expression.groupings:
            known = {"instance"}.union(
                *(found for one in selectors for found in series.get(one.metric, [{}]))
            )
            assert set(labels) <= known, text


async def test_the_page_lists_the_metrics_that_there_are_with_their_labels(series: Series) -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ((?:`\w+`(?:, )?)*) ?\| ", PAGE, re.MULTILINE)
    listed = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`((?:http|memory)_\w+)`", names)
    }
    served: dict[str, set[str]] = {}
    for name, samples in series.items():
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        served.setdefault(base, set()).update(*(labels for labels in samples))
    assert listed == {name: labels - {"le"} for name, labels in served.items()}


def test_every_alert_has_its_entry_in_the_runbook_and_its_trial() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    runbook = PAGE.partition("## Runbook")[2]
    assert re.findall(r"^### (\w+)$", runbook, re.MULTILINE) == names
    trial = yaml.safe_load((OPERATIONS / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    assert {one["alertname"] for one in trial[0]["alert_rule_test"]} == set(names)
    fired = "".join(one["labels"] for one in trial[1]["promql_expr_test"][0]["exp_samples"])
    assert sorted(re.findall(r'"(\w+)"', fired)) == sorted(names)
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_the_dashboard_is_whole() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for place in (
            (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
        ):
            assert place not in taken, f"{panel['title']} covers another panel"
            taken.add(place)
        shown = {
            label for target in panel["targets"] for label in re.findall(r"{{(\w+)}}", target["legendFormat"])
        }
        groups = [read_expression(target["expr"]).groupings for target in panel["targets"]]
        for expression in groups:
            if expression:
                assert shown <= set(expression[0][0]), panel["title"]


@pytest.mark.parametrize(
    "text",
    [
        "rate(a)",
        "a[5m]",
        "rate(a[5m]) / b[5m]",
        "sum(1)",
        "sum by (a (b)",
        "a{b=c}",
        "a > 1 and 2",
        "a b",
        "a{b='c'",
        "histogram_quantile(b, 0.9)",
        "",
    ],
)
def test_what_is_no_expression_is_not_read(text: str) -> None:
    with pytest.raises(ExpressionError):
        read_expression(text)
