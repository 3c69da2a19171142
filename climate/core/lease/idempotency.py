"""Idempotency keys: the service executes a request once, however often the client sends it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """The key with which a client identifies a request, and a fingerprint of the content."""

    project_id: str
    user_id: str
    key: str
    fingerprint: str


class AlreadyProcessed(Exception):
    """An earlier request with the same key succeeded; ``answer`` is its answer."""

    code = "already_answered"

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__("an earlier request with the same idempotency key succeeded")
        self.answer = answer
