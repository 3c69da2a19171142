"""The grammar of property expressions in the console: text, JSON, and back."""

from tests.browser.chromium import Browser

_READ = """
const [path, texts, done] = arguments;
import(path).then(({ filterText, parseFilter }) => done(texts.map((text) => {
  try {
    const expression = parseFilter(text);
    return [expression, filterText(expression)];
  } catch (error) {
    return [`${error.at}: ${error.message}`, null];
  }
})));
"""
# What a person writes, the expression that the API receives, and how the console shows it.
_ACCEPTED = [
    ("", None, ""),
    ("gpus >= 4", [">=", "$gpus", 4], "gpus >= 4"),
    ("$gpus==4", ["==", "$gpus", 4], "gpus = 4"),
    ("rack = r1", ["==", "$rack", "r1"], "rack = r1"),
    ("id = 007", ["==", "$id", "007"], "id = 007"),
    ("name = 'a \"b\" and'", ["==", "$name", 'a "b" and'], 'name = "a \\"b\\" and"'),
    ('["<", "$gpus", 2]', ["<", "$gpus", 2], "gpus < 2"),
    ("rack in (r1, 2)", ["in", "$rack", "r1", 2], "rack in r1, 2"),
    (
        "a = 1 AND b = 2 or c = 3",
        ["or", ["and", ["==", "$a", 1], ["==", "$b", 2]], ["==", "$c", 3]],
        "(a = 1 and b = 2) or c = 3",
    ),
    (
        "not (a = 1 or b != 2)",
        ["not", ["or", ["==", "$a", 1], ["!=", "$b", 2]]],
        "not (a = 1 or b != 2)",
    ),
]
_REJECTED = [
    ("gpus", '4: Write a comparison after "gpus": gpus >= 4.'),
    ("gpus >=", '7: Write a value after "gpus >=".'),
    ("(a = 1", '0: A ")" is missing.'),
    ("a = 1 b = 2", '6: Write "and" or "or" before "b".'),
    ("a in 1,", "7: Write a value after the comma."),
    ("a = 'x", '3: "\'" is not expected here.'),
    ("[1", "0: This is not JSON."),
]


def _read(browser: Browser, texts: list[str]) -> list[list[object]]:
    script = "return document.querySelector('script[type=module]').src"
    path = str(browser.js(script)).replace("/app.js", "/tables/properties.js")
    answer: list[list[object]] = browser.driver.execute_async_script(_READ, path, texts)
    return answer


def test_property_expressions_are_read_and_shown(browser: Browser) -> None:
    accepted = _read(browser, [text for text, _, _ in _ACCEPTED])
    assert accepted == [[expression, shown] for _, expression, shown in _ACCEPTED]
    # What is shown means the same.
    again = _read(browser, [shown for _, _, shown in _ACCEPTED])
    assert again == accepted
    rejected = _read(browser, [text for text, _ in _REJECTED])
    assert rejected == [[message, None] for _, message in _REJECTED]
