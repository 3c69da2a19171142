"""Shows the progress of a wait: one line that changes on a terminal, else a line per change."""

from collections.abc import Callable
from datetime import datetime
from typing import TextIO

from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.waiting import Progress

_REWRITE = "\r\x1b[K"


class ProgressLine:
    """A callback for waits that writes to ``stream`` in the time zone ``zone``; None: nowhere."""

    def __init__(
        self,
        stream: TextIO | None,
        zone: Zone,
        now: Callable[[], datetime] = times.now,
    ) -> None:
        self._stream = stream
        self._zone = zone
        self._now = now
        self._is_terminal = stream is not None and stream.isatty()
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Show what the wait waits for."""
        text = self._text(progress)
        if self._stream is None or text == self._last:
            return
        self._last = text
        self._stream.write(f"{_REWRITE}{text}" if self._is_terminal else f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._stream is not None and self._is_terminal and self._last:
            self._stream.write("\n")
            self._stream.flush()

    def _text(self, progress: Progress) -> str:
        start = progress.starts_at
        text = progress.text(lambda moment: times.show(moment, self._zone))
        if progress.problem is not None or start is None:
            return text
        left = (start - self._now()).total_seconds()
        status = progress.lease.status if progress.lease else ""
        if left <= 0:
            return f"{status}: starts now"
        return f"{text}, in {times.span(left)}" if self._is_terminal else text
