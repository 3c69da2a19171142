"""No control character reaches a log line."""

import logging

from climate.config import registry as config_registry
from climate.config.log_lines import EscapingFormatter
from climate.observability import log_context


def test_escapes_control_characters_in_messages_contexts_and_stack_traces() -> None:
    conf = config_registry.new()
    conf([], project="climate")
    log_context.begin_request("req-1", None)
    log_context.identified("ali\x1bce\n", "lab", "a\n2026 forged")
    error = ValueError("bad\x1b[2J\n2026 forged \ud800")
    info = (ValueError, error, None)
    record = logging.LogRecord("climate", 40, "f", 1, "DELETE %s", ("/a\r\n2026\u2028\x85",), info)
    text = EscapingFormatter(config=conf, project="climate").format(record)
    log_context.forget()
    first, *trace = text.splitlines()
    assert r"DELETE /a\r\n2026\u2028\x85" in first
    assert r"ali\x1bce\n" in first
    assert r"ValueError: bad\x1b[2J" in text
    assert text.replace("\n", "").isprintable()
    assert all(" ERROR climate" in line for line in trace if line), trace


def test_formats_keep_their_colours() -> None:
    conf = config_registry.new()
    conf([], project="climate")
    conf.set_override("log_color", True)
    conf.set_override("logging_default_format_string", "\x1b[01;33m%(message)s\x1b[00m")
    record = logging.LogRecord("climate", 30, "f", 1, "a\n\x1b[2J", (), None)
    text = EscapingFormatter(config=conf, project="climate").format(record)
    assert text == "\x1b[01;33ma\\n\\x1b[2J\x1b[00m"
