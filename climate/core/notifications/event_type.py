"""The types of notifications: the list of all types, and a check of types in requests.

A custom event of a lease has the type ``lease.event.KIND``, in which the user chose KIND.
"""

import difflib
import re
from typing import NewType

from climate.core.lease.schedule import (
    BEFORE_END,
    BEFORE_END_REMINDER,
    BEFORE_START,
    END,
    START,
    UPDATE,
)

#: The type of a notification. Only this module creates values, so the list below is complete.
EventType = NewType("EventType", str)

_OF_EVENT = "lease.event."
_OF_NODE = "node."
#: The notification ``node.prepare`` requests a provisioner to prepare a host.
PREPARE = "prepare"
#: What users may choose as the kind of a custom event.
CUSTOM_KIND = re.compile(r"[a-z][a-z0-9_.]{0,63}", re.ASCII)


def of_event(kind: str) -> EventType:
    """Return the type of the notifications about the lease events of this kind."""
    return EventType(f"{_OF_EVENT}{kind}")


def of_node(kind: str) -> EventType:
    """Return the type of the notifications of this kind about nodes."""
    return EventType(f"{_OF_NODE}{kind}")


LEASE_CREATE = EventType("lease.create")
LEASE_UPDATE = EventType("lease.update")
LEASE_DELETE = EventType("lease.delete")
LEASE_WAITING = EventType("lease.waiting")
LEASE_PROMISED = EventType("lease.promised")
LEASE_MOVED_FORWARD = EventType("lease.moved_forward")
LEASE_PROMISE_WITHDRAWN = EventType("lease.promise_withdrawn")
LEASE_NOT_ADMITTED = EventType("lease.not_admitted")
LEASE_TRUST_LOST = EventType("lease.trust_lost")
LEASE_TRUST_RESTORED = EventType("lease.trust_restored")
LEASE_NOT_RESERVED = EventType("lease.not_reserved")
LEASE_CATCH_UP = EventType("lease.catch_up")
LEASE_REMINDER = EventType("lease.reminder")
LEASE_START_DELAYED = EventType("lease.start_delayed")
LEASE_NOT_STARTED = EventType("lease.not_started")
RESERVATION_STARTED = EventType("reservation.started")
RESERVATION_STOPPED = EventType("reservation.stopped")
OFFER_MADE = EventType("offer.made")
OFFER_ACCEPTED = EventType("offer.accepted")
OFFER_EXPIRED = EventType("offer.expired")
OFFER_DELETED = EventType("offer.deleted")
BEFORE_END_STOPPED = of_event(f"{BEFORE_END}.stop")
SUBSCRIPTION_SUSPENDED = EventType("subscription.suspended")
INVARIANT_BROKEN = EventType("audit.invariant_broken")
INVARIANT_HOLDS = EventType("audit.invariant_holds")

#: All types but those of custom events, in the order of the documentation.
KNOWN = (
    LEASE_CREATE,
    LEASE_UPDATE,
    LEASE_WAITING,
    LEASE_PROMISED,
    LEASE_MOVED_FORWARD,
    LEASE_PROMISE_WITHDRAWN,
    LEASE_NOT_ADMITTED,
    *map(of_event, (BEFORE_START, START, UPDATE, BEFORE_END, BEFORE_END_REMINDER, END)),
    BEFORE_END_STOPPED,
    LEASE_REMINDER,
    LEASE_START_DELAYED,
    LEASE_NOT_STARTED,
    LEASE_CATCH_UP,
    LEASE_NOT_RESERVED,
    LEASE_TRUST_LOST,
    LEASE_TRUST_RESTORED,
    LEASE_DELETE,
    RESERVATION_STARTED,
    RESERVATION_STOPPED,
    OFFER_MADE,
    OFFER_ACCEPTED,
    OFFER_EXPIRED,
    OFFER_DELETED,
    *map(of_node, (PREPARE, START, END)),
    SUBSCRIPTION_SUSPENDED,
    INVARIANT_BROKEN,
    INVARIANT_HOLDS,
)


def why_unknown(pattern: str) -> str | None:
    """Return why no notification can match ``pattern``, as a text for users; None if one can.

    ``pattern`` is a type, or the beginning of types with ``*`` at the end. A custom event may have
    any kind, so each valid kind counts as known.
    """
    prefix = pattern.removesuffix("*")
    custom = prefix.removeprefix(_OF_EVENT)
    is_custom = custom != prefix and bool(CUSTOM_KIND.fullmatch(custom))
    is_known = any(known.startswith(prefix) for known in KNOWN) if prefix != pattern else False
    if is_custom or is_known or pattern in KNOWN:
        return None
    if custom != prefix:
        return (
            f"This is no event type. After {_OF_EVENT} there are up to 64 lower case letters,"
            " digits, _ and ., the first of them a letter."
        )
    # Users forget parts of a type: lease.start_lease, or lease.start.
    types = {known.replace(_OF_EVENT, "lease."): known for known in KNOWN}
    types |= {short.removesuffix("_lease"): known for short, known in types.items()}
    close = difflib.get_close_matches(pattern.lower(), [*types, *KNOWN], n=2)
    if close:
        names = dict.fromkeys(types.get(name, name) for name in close)
        return f"This is no event type. Did you mean {' or '.join(names)}?"
    return (
        f"This is no event type. Types are {', '.join(KNOWN)}, and {_OF_EVENT}<the type of an event"
        " of your own>. A * at the end matches any rest."
    )
