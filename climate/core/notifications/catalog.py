"""All types of notifications, when climate publishes them, and the members of their payloads.

The reference of notifications in the documentation is made from these tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from climate.core.lease import schedule
from climate.core.notifications import event_type
from climate.core.notifications.event_type import EventType


@dataclass(frozen=True, slots=True)
class NotificationType:
    """A type of notifications.

    ``name`` may contain a placeholder in capitals, such as ``lease.event.KIND``. ``when`` is a
    sentence for readers of the documentation. ``members`` are the members of the payload that this
    type has besides those of its ``subject`` in ``SHARED``.
    """

    name: EventType
    when: str
    members: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The first word of the name, which is what the notification is about."""
        return self.name.partition(".")[0]


_RESOURCES = ("hosts", "floatingips", "networks", "error")

TYPES = (
    NotificationType(event_type.LEASE_CREATE, "A lease was admitted."),
    NotificationType(event_type.LEASE_UPDATE, "A lease was changed, by a request or by healing."),
    NotificationType(
        event_type.LEASE_WAITING, "A lease waits for capacity, and has no booking yet."
    ),
    NotificationType(
        event_type.LEASE_PROMISED,
        "A waiting lease got a booking; lease.create follows. A firm promise never becomes later.",
    ),
    NotificationType(
        event_type.LEASE_MOVED_FORWARD,
        "The start of a lease from the wait list has become earlier, because capacity became free.",
    ),
    NotificationType(
        event_type.LEASE_PROMISE_WITHDRAWN,
        "A lease from the wait list lost its booking to a request with a fixed start, and waits"
        " again. Only with soft promises.",
    ),
    NotificationType(
        event_type.LEASE_NOT_ADMITTED,
        "A lease has left the wait list without a booking, as its owner's time limit has passed.",
    ),
    NotificationType(event_type.LEASE_DELETE, "A lease was deleted."),
    NotificationType(
        event_type.of_event(schedule.BEFORE_START),
        "A reminder before the start is due.",
        (*_RESOURCES, "starts_in"),
    ),
    NotificationType(
        event_type.of_event(schedule.START),
        "A lease started, or its start failed after all retries: its status is then ERROR.",
        _RESOURCES,
    ),
    NotificationType(
        event_type.of_event(schedule.UPDATE),
        "climate has carried out a change of a running lease's resources, or the attempts ended.",
        _RESOURCES,
    ),
    NotificationType(
        event_type.of_event(schedule.BEFORE_END),
        "The reminder before the end is due, and the snapshots of that time are done.",
        _RESOURCES,
    ),
    NotificationType(
        event_type.BEFORE_END_STOPPED,
        "The end of a lease moved after its before_end_lease event: the event is due again.",
    ),
    NotificationType(
        event_type.of_event(schedule.BEFORE_END_REMINDER),
        "A further reminder before the end is due.",
        (*_RESOURCES, "ends_in"),
    ),
    NotificationType(event_type.of_event(schedule.END), "A lease ended.", _RESOURCES),
    NotificationType(
        event_type.of_event("KIND"), "A user's own event of a lease is due.", _RESOURCES
    ),
    NotificationType(
        event_type.LEASE_REMINDER,
        "A reminder before the start is due that a subscriber asked for (before_start_leads). Only"
        " this subscription receives it.",
        (*_RESOURCES[:-1], "starts_in", "subscription_id"),
    ),
    NotificationType(
        event_type.LEASE_CATCH_UP,
        "Events of a lease are late, because no manager ran. Published once, with the first of"
        " them.",
        ("late",),
    ),
    NotificationType(
        event_type.LEASE_START_DELAYED,
        "The start of a lease waits for hosts that are not ready, or for what climate creates."
        " Published once.",
        ("waiting_for", "reason"),
    ),
    NotificationType(
        event_type.LEASE_NOT_STARTED,
        "A lease ended before its hosts were ready.",
        ("waiting_for", "reason"),
    ),
    NotificationType(
        event_type.LEASE_NOT_RESERVED,
        "A user changed a stack in Heat, and climate cannot reserve what it needs now. Published"
        " when this begins.",
        ("reason",),
    ),
    NotificationType(
        event_type.LEASE_TRUST_LOST,
        "climate can no longer act as the user of a lease.",
        ("reason",),
    ),
    NotificationType(
        event_type.LEASE_TRUST_RESTORED, "climate can act as the user of a lease again."
    ),
    NotificationType(
        event_type.RESERVATION_STARTED,
        "climate has created what a reservation with on_start manual is for, as a user requested.",
    ),
    NotificationType(
        event_type.RESERVATION_STOPPED,
        "climate has deleted it again, as a user requested; the capacity stays reserved.",
    ),
    NotificationType(event_type.OFFER_MADE, "An offer was made: it holds capacity."),
    NotificationType(
        event_type.OFFER_ACCEPTED, "An offer was accepted: it is a lease with the same id now."
    ),
    NotificationType(
        event_type.OFFER_EXPIRED,
        "An offer expired, or its acceptance did not complete: its capacity is free again.",
    ),
    NotificationType(
        event_type.OFFER_DELETED,
        "An offer was deleted by a request, or because a service refused its acceptance.",
    ),
    NotificationType(
        event_type.of_node(event_type.PREPARE),
        "Provisioning: a provisioner must prepare a host for a lease.",
        ("preparation_id", "needed_at"),
    ),
    NotificationType(
        event_type.of_node(schedule.START),
        "A lease with the host started; only with [provisioning] topics.",
    ),
    NotificationType(
        event_type.of_node(schedule.END),
        "A lease with the host ended; only with [provisioning] topics.",
    ),
    NotificationType(event_type.INVARIANT_BROKEN, "The self-audit found a violated invariant."),
    NotificationType(event_type.INVARIANT_HOLDS, "The invariant holds again."),
    NotificationType(
        event_type.SUBSCRIPTION_SUSPENDED,
        "climate suspended a subscription, because its receiver failed too often, or unsubscribed"
        " from the mails.",
    ),
)

_OF_LEASE = ("lease_id", "name", "status", "start_date", "end_date", "reservations", "events")
# Members of each payload, by the subject of its type.
SHARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lease": _OF_LEASE,
        "reservation": (*_OF_LEASE, "reservation_id"),
        "offer": (*_OF_LEASE, "expires_at"),
        "node": ("lease_id", "node", "reservation_id"),
        "audit": ("invariant", "look", "found", "broken_since"),
        "subscription": ("subscription_id", "user_id", "reason"),
    }
)
# What each member means.
MEMBERS: Mapping[str, str] = MappingProxyType(
    {
        "lease_id": "Id of the lease; null if the notification is about no lease.",
        "name": "Name of the lease.",
        "status": "Status of the lease after the event; ERROR if the event failed.",
        "start_date": "Start of the lease, UTC, as in v1.",
        "end_date": "End of the lease, UTC, as in v1.",
        "reservations": "Reservations of the lease, as in v1, without parameters that may be"
        " secret.",
        "events": "Events of the lease, as in v1.",
        "expires_at": "When the offer expires, ISO 8601; null if it is accepted.",
        "hosts": "Hosts of the lease: a list of objects with reservation_id, id and name.",
        "floatingips": "Floating IPs of the lease, in the form of hosts; absent if it has none.",
        "networks": "Network segments of the lease, in the form of hosts; absent if it has none.",
        "error": "Present if the event failed after all retries: the reason for each reservation.",
        "starts_in": "Seconds until the start. The broker and webhooks measure it when the message"
        " is sent, the log of notifications when the event took place.",
        "ends_in": "Seconds until the end, measured in the same way.",
        "late": "Late events in order: a list of objects with event_type, due, late_seconds and"
        " outcome (done or skipped).",
        "waiting_for": "Names of the hosts that are not ready.",
        "reason": "A sentence about the cause, and what to do.",
        "node": "Name of the host.",
        "reservation_id": "Id of the reservation that holds the host, or that a user started or"
        " stopped.",
        "preparation_id": "Id of the preparation, for /v2/preparations.",
        "needed_at": "When the host must be ready, ISO 8601.",
        "invariant": "Number of the invariant in ARCHITECTURE.md.",
        "look": "Name of the check.",
        "found": "Violations: up to 20 sentences.",
        "broken_since": "When the self-audit first found a violation.",
        "subscription_id": "Id of the subscription.",
        "user_id": "Id of the user who owns the object.",
        "project_id": "Id of the project that owns the object; empty for administrators only.",
        "seq": "Number of the notification: without gaps, always growing. On the broker and in"
        " webhooks; elsewhere it is beside the payload.",
        "message_id": "Id of the notification, the same if it is sent twice. Place as of seq.",
    }
)
EVERYWHERE = ("project_id", "seq", "message_id")
