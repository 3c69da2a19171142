"""A request that is to be carried out once, however often it is sent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from climate.core.lease.model import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """The caller's name for a request (``key``), and what tells it from another request.

    ``answer`` is what the caller is told about the lease, now and each time it asks again.
    """

    project_id: str
    user_id: str
    key: str
    fingerprint: str
    answer: Callable[[Lease], Mapping[str, Any]]


class AlreadyAnswered(Exception):
    """The request was carried out before: this is what was said then."""

    code = "already_answered"

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Keep the answer."""
        super().__init__("the request was carried out before")
        self.answer = answer
