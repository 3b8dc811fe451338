"""Rules about the text of the sources that no linter of ours has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "app").rglob("*.py"))
MAX_LINES = 410
# Reembedding rebuilds columns: half of it is a migration, and belongs beside the other half.
WRITES_SQL = {"store", "rows", "reembedding"}

# What reads a clock. DTZ of ruff refuses naive times only.
CLOCK_CALLS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.time",
    "time.monotonic",
    "time.perf_counter",
}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def clock_calls(source: str) -> list[str]:
    return [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCK_CALLS
    ]


def unsafe_sql(source: str) -> list[str]:
    """What stands in SQL text without being of the module: parameters, and what is reached through them.

    A helper's return value may stand there (the helper is under the same rule), and so may a local name.
    """
    faults = []
    for function in functions(ast.parse(source)):
        given = caller_given(function)
        for node in ast.walk(function):
            if isinstance(node, ast.FormattedValue) and text_names(node.value) & given:
                faults.append(f"line {node.lineno}: {{{ast.unparse(node.value)}}} is given by a caller")
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("text")
                and isinstance(next(iter(node.args), None), ast.BinOp | ast.Call)
            ):
                faults.append(f"line {node.lineno}: SQL is one literal, or one f-string")
    return faults


def caller_given(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The parameters that can hold any text; a choice between literals cannot."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return {
        argument.arg
        for argument in arguments
        if not (argument.annotation and ast.unparse(argument.annotation).startswith("Literal["))
    }


def text_names(value: ast.AST) -> set[str]:
    """The names whose text can come to stand where an expression is interpolated.

    What a function called by its name returns is that function's affair, and a condition is no text.
    """
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return set()
    if isinstance(value, ast.IfExp):
        return text_names(value.body) | text_names(value.orelse)
    if isinstance(value, ast.Name):
        return {value.id}
    return set[str]().union(*map(text_names, ast.iter_child_nodes(value)))


def test_only_the_clock_reads_the_clock() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for path in SOURCES
        if path.name != "clock.py" and (calls := clock_calls(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_sql_is_made_of_constants_and_values_are_parameters() -> None:
    found = {
        str(path.relative_to(ROOT)): faults
        for path in SOURCES
        if path.stem.rpartition("_")[2] == "store"
        and (faults := unsafe_sql(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_no_pattern_of_sql_is_given_by_a_caller() -> None:
    """In a LIKE, `%` and `_` of a caller's text would be wildcards; position() takes them as they are."""
    pattern = re.compile(r"\b(?:I?LIKE|SIMILAR TO)\b[^\n]*:[a-z_]|~\*?\s*(?:CAST\()?:[a-z_]")
    found = {
        str(path.relative_to(ROOT)): hits
        for path in SOURCES
        if path.stem.rpartition("_")[2] in WRITES_SQL
        and (hits := [found[0] for found in pattern.finditer(path.read_text(encoding="utf-8"))])
    }
    assert not found
    for hole in (
        "LIKE :keyword",
        "ILIKE '%' || :keyword || '%'",
        "NOT LIKE CAST(:keyword AS text)",
        "~ :keyword",
    ):
        assert pattern.search(f"WHERE content {hole}")


def test_sql_stands_in_stores_only() -> None:
    rooms = [path for path in SOURCES if path.parent.name in {"recall", "dialogues", "tiers", "chat", "api"}]
    found = [
        str(path.relative_to(ROOT))
        for path in rooms
        if path.stem.rpartition("_")[2] not in WRITES_SQL
        and any(
            isinstance(node, ast.ImportFrom)
            and node.module == "sqlalchemy"
            and "text" in {name.name for name in node.names}
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert len(rooms) > 20
    assert not found


def test_modules_stay_short() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in SOURCES
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MAX_LINES
    }
    assert not found


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_name_no_registry_and_pin_every_package_by_hash(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert packages
    assert not [line for line in lines if "://" in line or line.lstrip().startswith("--index")]
    assert not [line for line in packages if "==" not in line or not line.endswith("\\")]


@pytest.mark.parametrize(
    ("statement", "faults"),
    [
        ('text(f"SELECT {name}")', 1),
        ('text(f"SELECT {query.name}")', 1),
        ('text(f"SELECT {query.names[0].strip()}")', 1),
        ("text(f\"SELECT {', '.join(names)}\")", 1),
        ('text("SELECT " + name)', 1),
        ('text("SELECT {}".format(name))', 1),
        ('text(f"SELECT {COLUMNS} WHERE {condition(name)}")', 0),
        ('text("SELECT :name"), {"name": name}', 0),
    ],
)
def test_the_rule_on_sql_sees_what_it_should(statement: str, faults: int) -> None:
    assert (
        len(
            unsafe_sql(
                f"def find(name: str, names: list[str], query: Query) -> None:\n    run({statement})\n"
            )
        )
        == faults
    )


def test_the_rule_on_the_clock_sees_what_it_should() -> None:
    assert len(clock_calls("a = datetime.now(UTC)\nb = time.monotonic()\nc = clock()\n")) == 2
