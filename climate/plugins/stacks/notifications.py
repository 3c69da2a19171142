"""What Heat's notifications mean: which stack a user may have changed."""

import re
from collections.abc import Mapping

# Only at the end of these actions a stack has another source. A nested stack reports its own
# actions, but climate compares only the source of the stack that contains it.
_CHANGES = frozenset(
    f"orchestration.stack.{action}.{outcome}"
    for action in ("update", "rollback", "restore")
    for outcome in ("end", "error")
)
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def changed_stack(event_type: object, payload: object) -> str | None:
    """Return the id of the stack whose source a notification says to be another one.

    Returns None if the notification is about something else. Raises ValueError if the notification
    has no valid id.
    """
    if not isinstance(event_type, str) or event_type not in _CHANGES:
        return None
    found = payload.get("stack_identity") if isinstance(payload, Mapping) else None
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise ValueError(f"{event_type} has no valid stack_identity")
    return found
