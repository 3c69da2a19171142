"""Reads templates and environments of Heat, as YAML or JSON, within limits.

A user's text must not stop the process. Deep nesting would overflow the stack of the YAML library.
An alias repeats a value, so aliases of aliases would multiply the value. Therefore climate first
reads the events of the YAML parser. From these events, it checks the depth and size of the
document, and rejects aliases. Only then climate loads the document.
"""

import json
from collections.abc import Callable
from typing import Any

import yaml
from heatclient.common.environment_format import SECTIONS

from climate.core.errors import InvalidInput
from climate.core.matching.quoting import check_storable, cut

MAX_DEPTH = 64
MAX_NODES = 50_000
# A number in base 60, such as 1:30, takes quadratic time.
_MAX_DIGITS = 100
# Raised by JSON, and by YAML for a tag that does not fit its value, such as `!!int ""`.
_INVALID = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
_VERSIONS = ("heat_template_version", "HeatTemplateFormatVersion", "AWSTemplateFormatVersion")


class InvalidTemplate(InvalidInput):
    """Raised if a text is not a valid template or environment."""


class TooComplex(InvalidTemplate):
    """Raised if a text exceeds a limit, so climate cannot know whether it is a template."""


class _Loader(yaml.CSafeLoader):  # type: ignore[misc]  # yaml ships no types
    """Loads YAML as Heat does: dates stay text. Raises TooComplex for numbers with many digits."""

    def construct_limited_int(self, node: yaml.ScalarNode) -> int:
        _check_digits(node.value)
        return int(self.construct_yaml_int(node))

    def construct_limited_float(self, node: yaml.ScalarNode) -> float:
        _check_digits(node.value)
        return float(self.construct_yaml_float(node))


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_limited_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_limited_float)


def parse_template(text: str) -> dict[str, Any]:
    """Parse the text of a Heat template.

    Raises InvalidTemplate if the text is malformed, exceeds a limit, or names no template version.
    """
    text = text.strip()
    template = _parse(_load_json if text.startswith("{") else _load_yaml, text)
    if not names_version(template):
        raise InvalidTemplate(f"None of these keys is present: {', '.join(_VERSIONS)}")
    return template


def parse_environment(text: str) -> dict[str, Any]:
    """Parse the text of a Heat environment.

    Raises InvalidTemplate if the text is malformed, exceeds a limit, or has an unknown section.
    """
    environment = _parse(_load_yaml, text)
    for section in environment:
        if section not in SECTIONS:
            raise InvalidTemplate(
                f"Unknown section {cut(section)}; an environment has {', '.join(SECTIONS)}"
            )
    return environment


def names_version(template: Any) -> bool:  # noqa: ANN401 - an object, or a text that may be one
    """Return whether a template, or its text, contains a key that names its format's version."""
    return any(key in template for key in _VERSIONS)


def _parse(load: Callable[[str], Any], text: str) -> dict[str, Any]:
    try:
        document = load(text)
        # Also makes all keys text, as in the JSON that Heat gets.
        document = json.loads(json.dumps({} if document is None else document, allow_nan=False))
        check_storable(document)
    except (yaml.YAMLError, *_INVALID) as error:
        raise InvalidTemplate(cut(" ".join(str(error).split()))) from None
    if not isinstance(document, dict):
        raise InvalidTemplate("This is not an object (a YAML mapping)")
    return document


def _load_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    document = json.loads(text)
    rest, nodes = [(document, 1)], 0
    while rest:
        value, depth = rest.pop()
        nodes += 1
        _check_limits(depth, nodes)
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        rest += [(item, depth + 1) for item in inner] if isinstance(inner, list) else []
    return document


def _load_yaml(text: str) -> Any:  # noqa: ANN401 - any YAML
    # libyaml compares each of these with all others.
    if any(line.startswith("%TAG") for line in text.splitlines()):
        raise TooComplex("%TAG directives are not allowed: write tags in full")
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise TooComplex(
                f"Line {event.start_mark.line + 1} has the alias *{cut(event.anchor)}. Aliases are"
                " not allowed: repeat the value, or use a parameter"
            )
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        _check_limits(depth, nodes)
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def _check_limits(depth: int, nodes: int) -> None:
    if depth > MAX_DEPTH:
        raise TooComplex(f"This is nested deeper than {MAX_DEPTH} levels")
    if nodes > MAX_NODES:
        raise TooComplex(f"This has more than {MAX_NODES} keys and values: split it into files")


def _check_digits(text: str) -> None:
    if len(text) > _MAX_DIGITS:
        raise TooComplex(f"A number has more than {_MAX_DIGITS} digits: write it in quotes")
