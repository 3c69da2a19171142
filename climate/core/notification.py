"""A message to the world about a lease."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What happened to which lease; ``seq`` orders all, ``message_id`` tells repeats apart."""

    seq: int
    message_id: str
    event_type: str
    lease_id: str
    project_id: str
    payload: Mapping[str, Any]
    created_at: datetime
