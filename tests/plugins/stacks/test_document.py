"""Templates and environments as text: what is read, and what is rejected before it is loaded."""

import json
import subprocess
import sys

import pytest

from climate.plugins.stacks import document
from climate.plugins.stacks.document import InvalidTemplate, parse_environment, parse_template
from climate.plugins.stacks.template import Source, at_maximum, edited
from tests.support.cases import each_case

HOT = "heat_template_version: 2016-10-14\n"
DEEP = document.MAX_DEPTH - 1  # below the template itself
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
# A process of its own, because an overflow of the C stack would end it. It reports each rejection.
NESTED = """
from marshmallow import ValidationError
from climate.plugins.stacks.schema import StackSchema

LEVELS = 60_000
for nested in ("- " * LEVELS + "x", "? " * LEVELS + "x", "{a: " * LEVELS, "[" * LEVELS):
    for key in ("template", "environment"):
        params = {"template": {"heat_template_version": "x"}, key: f"parameters:\\n {nested}"}
        try:
            StackSchema().load(params)
        except ValidationError as error:
            print(*error.messages_dict[key])
"""


def test_text_that_is_nested_60000_levels_deep_is_rejected() -> None:
    command = [sys.executable, "-c", NESTED]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert child.returncode == 0, child.stderr
    assert (
        child.stdout.splitlines()
        == [f"Cannot be read: This is nested deeper than {document.MAX_DEPTH} levels"] * 8
    )


@each_case(
    "text, reason",
    [
        ("", "None of these keys"),
        ("- a list", "not an object"),
        ("a: [", "flow"),
        ("no: version", "None of these keys"),
        ("\x00", "control characters"),
        (f'{HOT}a: "\\0"', "NUL"),
        (f"{HOT}a: .nan", "not JSON compliant"),
        (f"{HOT}{BOMB}", "Line 3 has the alias *a"),
        (f"{HOT}a: &a [*a]", "Line 2 has the alias *a"),
        (f"%TAG !a! x\n---\n{HOT}", "%TAG"),
        (f"{HOT}--- {{}}", "single document"),
        (f"{HOT}a: {'[' * DEEP}1{']' * DEEP}", None),
        (f"{HOT}a: {'[' * DEEP}[]{']' * DEEP}", "deeper than 64"),
        (f"{HOT}a: [{'x,' * document.MAX_NODES}]", "more than 50000"),
        (json.dumps({"heat_template_version": "x", "a": [0] * document.MAX_NODES}), "more than"),
        (f'{{"heat_template_version": {"[" * DEEP}[]{"]" * DEEP}}}', "deeper than 64"),
        (f'{{"heat_template_version": {"[" * 100_000}', "recursion"),
        # Numbers in base 60: their time is quadratic, and large ones are no float.
        (f"{HOT}a: 1{':1' * 100}", "A number has more than 100 digits"),
        (f"{HOT}a: 1{':1' * 300}.0", "A number has more than 100 digits"),
        # Tags that do not fit their value make constructors fail.
        *((f'{HOT}a: !!{tag} "x"', "") for tag in ("int", "float", "bool", "binary")),
        (f'{HOT}a: !!int ""', ""),
        (f"{HOT}a: !!set {{a}}", "not JSON serializable"),
        (f"{HOT}a: !!python/name:os.system", "could not determine a constructor"),
    ],
)
def test_text_that_is_no_template_is_rejected(text: str, reason: str | None) -> None:
    if reason is None:
        parse_template(text)
        return
    with pytest.raises(InvalidTemplate) as rejection:
        parse_template(text)
    assert reason in rejection.value.message


@each_case("text", ["- a list", "parameter: {}", f"parameters: {BOMB}", "parameters: {a: &a [*a]}"])
def test_text_that_is_no_environment_is_rejected(text: str) -> None:
    with pytest.raises(InvalidTemplate):
        parse_environment(text)


def test_dates_and_keys_become_text_as_in_json() -> None:
    assert parse_template(f"{HOT}1: 1:30\nnull: 2016-10-14") == {
        "heat_template_version": "2016-10-14",
        "1": 90,
        "null": "2016-10-14",
    }
    assert parse_environment("") == {}


def test_a_nested_template_beyond_the_limits_is_rejected_and_another_file_is_kept() -> None:
    source = Source({"heat_template_version": "x"}, {"users.yaml": BOMB})
    assert edited(source, at_maximum).files == source.files
    source = Source({"heat_template_version": "x"}, {"a.yaml": HOT + BOMB})
    with pytest.raises(InvalidTemplate, match=r"File a\.yaml cannot be read: Line 3 has the alias"):
        edited(source, at_maximum)
