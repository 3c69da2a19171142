"""The manual page has the commands and options of the code."""

from tests.docs import manual


def test_the_manual_page_is_that_of_the_present_commands() -> None:
    assert manual.PAGE.read_text(encoding="utf-8") == manual.text(), "run make man"
