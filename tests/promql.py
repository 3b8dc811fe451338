"""PromQL, read as far as our rules and panels need it: whole expressions, with the types of their parts.

Source: https://prometheus.io/docs/prometheus/latest/querying/basics/ and …/operators/, …/functions/.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["scalar", "instant", "range"]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<duration>(?:\d+(?:ms|[smhdwy]))+|\$__rate_interval)
    |(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],])
    )""",
    re.VERBOSE,
)
_LEVELS: list[set[str]] = [
    {"or"},
    {"and", "unless"},
    {"==", "!=", "<", ">", "<=", ">="},
    {"+", "-"},
    {"*", "/", "%"},
]
_AGGREGATIONS = {"sum", "min", "max", "avg", "count"}
# What a function takes, and what it gives.
_FUNCTIONS: dict[str, tuple[list[Kind], Kind]] = {
    "rate": (["range"], "instant"),
    "increase": (["range"], "instant"),
    "delta": (["range"], "instant"),
    "predict_linear": (["range", "scalar"], "instant"),
    "histogram_quantile": (["scalar", "instant"], "instant"),
    "absent": (["instant"], "instant"),
    "time": ([], "scalar"),
}


class ExpressionError(Exception):
    """What was to be read is no expression, or its types do not fit."""


@dataclass(frozen=True)
class Matcher:
    """One condition on a label."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True)
class Selector:
    """Series that an expression reads."""

    metric: str
    matchers: tuple[Matcher, ...]


@dataclass(frozen=True)
class Expression:
    """What was read: its type, the series in it, and for each list of labels the series it is about."""

    kind: Kind
    selectors: tuple[Selector, ...] = ()
    groupings: tuple[tuple[tuple[str, ...], tuple[Selector, ...]], ...] = ()


@dataclass
class _Reader:
    tokens: list[tuple[str, str]]
    place: int = 0
    groupings: list[tuple[tuple[str, ...], tuple[Selector, ...]]] = field(default_factory=list)

    def peek(self) -> str:
        return self.tokens[self.place][1]

    def take(self, *wanted: str) -> str:
        kind, text = self.tokens[self.place]
        if wanted and text not in wanted and kind not in wanted:
            raise ExpressionError(f"{text or 'the end'} where {' or '.join(wanted)} should be")
        self.place += 1
        return text

    def has(self, *wanted: str) -> bool:
        return self.peek() in wanted

    def binary(self, level: int = 0) -> tuple[Kind, list[Selector]]:
        if level == len(_LEVELS):
            return self.unit()
        kind, selectors = self.binary(level + 1)
        while self.has(*_LEVELS[level]):
            operator = self.take()
            right_kind, right = self.binary(level + 1)
            if "range" in {kind, right_kind}:
                raise ExpressionError(f"a range beside {operator}")
            if operator in {"and", "or", "unless"} and "scalar" in {kind, right_kind}:
                raise ExpressionError(f"a number beside {operator}")
            kind = "instant" if "instant" in {kind, right_kind} else "scalar"
            selectors = [*selectors, *right]
        return kind, selectors

    def unit(self) -> tuple[Kind, list[Selector]]:
        if self.has("("):
            self.take()
            inside = self.binary()
            self.take(")")
            return inside
        if self.tokens[self.place][0] == "number":
            self.take()
            return "scalar", []
        name = self.take("name")
        if name in _AGGREGATIONS:
            return self.aggregation()
        return self.function(name) if name in _FUNCTIONS else self.selector(name)

    def aggregation(self) -> tuple[Kind, list[Selector]]:
        labels: tuple[str, ...] | None = None
        if self.has("by", "without"):
            self.take()
            labels = tuple(self.listed("name"))
        self.take("(")
        kind, selectors = self.binary()
        self.take(")")
        if kind != "instant":
            raise ExpressionError(f"an aggregation of a {kind}")
        if labels is not None:
            self.groupings.append((labels, tuple(selectors)))
        return "instant", selectors

    def listed(self, kind: str) -> Iterator[str]:
        self.take("(")
        while not self.has(")"):
            yield self.take(kind)
            if not self.has(")"):
                self.take(",")
        self.take(")")

    def function(self, name: str) -> tuple[Kind, list[Selector]]:
        wanted, gives = _FUNCTIONS[name]
        found: list[Kind] = []
        selectors: list[Selector] = []
        self.take("(")
        while not self.has(")"):
            kind, more = self.binary()
            found.append(kind)
            selectors += more
            if not self.has(")"):
                self.take(",")
        self.take(")")
        if found != wanted:
            raise ExpressionError(f"{name} takes {wanted}, not {found}")
        return gives, selectors

    def selector(self, name: str) -> tuple[Kind, list[Selector]]:
        matchers = []
        if self.has("{"):
            self.take()
            while not self.has("}"):
                label, operator, value = (
                    self.take("name"),
                    self.take("=", "!=", "=~", "!~"),
                    self.take("string"),
                )
                matchers.append(Matcher(label, operator, value[1:-1]))
                if not self.has("}"):
                    self.take(",")
            self.take("}")
        kind: Kind = "instant"
        if self.has("["):
            self.take()
            self.take("duration")
            self.take("]")
            kind = "range"
        return kind, [Selector(name, tuple(matchers))]


def read_expression(text: str) -> Expression:
    """The expression, whole.

    Raises:
        ExpressionError: it is none, or its types do not fit.
    """
    tokens: list[tuple[str, str]] = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found or not found.lastgroup:
            raise ExpressionError(f"unreadable: {text[place : place + 20]}")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    reader = _Reader([*tokens, ("end", "")])
    kind, selectors = reader.binary()
    reader.take("end")
    if kind == "range":
        raise ExpressionError("a range is no answer")
    return Expression(kind, tuple(selectors), tuple(reader.groupings))
