"""Idempotency keys: climate executes a request only once, even if the client sends it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """The key that a client chose for a request, and a fingerprint of the request's body.

    If a user sends two requests with the same key and the same fingerprint, climate treats the
    second one as a repetition of the first.
    """

    project_id: str
    user_id: str
    key: str
    fingerprint: str


class AlreadyProcessed(Exception):
    """Raised if an earlier request with the same key succeeded; ``answer`` is what it returned."""

    code = "already_answered"

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__("an earlier request with the same idempotency key succeeded")
        self.answer = answer
