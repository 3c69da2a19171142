"""Escapes control characters in log lines.

Without this, text from a request could forge a log line, or move the cursor of a terminal.
"""

import logging
import re

from oslo_config.cfg import ConfigOpts
from oslo_log.formatters import ContextFormatter

# C0 and C1 controls, line separators, direction marks, and surrogates (no encoding writes them).
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# The same without codes for colours: with the option ``log_color``, log lines contain such codes.
_CONTROL_BUT_COLOUR = re.compile(rf"(?!\x1b\[[0-9;]*m){_CONTROL.pattern}")


def escape_control_characters(conf: ConfigOpts) -> None:
    """Make all log handlers escape control characters.

    Do nothing for JSON logs, because JSON already escapes control characters.
    """
    if conf.use_json:
        return
    formatter = EscapingFormatter(
        project="climate", version="unknown", datefmt=conf.log_date_format, config=conf
    )
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is ContextFormatter:
            handler.setFormatter(formatter)


class EscapingFormatter(ContextFormatter):
    """A formatter that escapes control characters in log lines and their stack traces."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line, with control characters escaped.

        The line breaks of a stack trace are not escaped. Each of its lines keeps the prefix that
        oslo.log adds to lines of stack traces.
        """
        text, trace = super().format(record), record.exc_text
        if not trace:
            return self._escape(text)
        line = text.removesuffix(trace).removesuffix("\n")
        return "\n".join(map(self._escape, [line, *trace.split("\n")]))

    def _escape(self, text: str) -> str:
        control = _CONTROL_BUT_COLOUR if self.conf.log_color else _CONTROL
        return control.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
