"""A typed Python client of climate's API v2, and the ``climate`` command.

``connect`` returns a ``Client``, which has the leases, resources and so on as attributes. The
client is based on keystoneauth and imports nothing of the service.
"""

from climate.client.client import Client, connect
from climate.client.errors import (
    Alternative,
    Changed,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    KeystoneUnreachable,
    LimitExceeded,
    NotConfigured,
    NotEnoughResources,
    NotFound,
    NotificationsRemoved,
    OfferExpired,
    Refused,
    ServiceUnreachable,
    SignInFailed,
    TemporarilyUnavailable,
    TlsFailed,
    Unauthenticated,
    UnexpectedAnswer,
    WaitFailed,
    WaitTimedOut,
)
from climate.client.leases import Offer
from climate.client.models import Lease, Notification, Resource
from climate.client.reservations import (
    flavor_instances,
    floatingips,
    hosts,
    instances,
    network,
    reservation,
    stack,
    volumes,
)
from climate.client.waiting import Progress

__all__ = [
    "Alternative",
    "Changed",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "InvalidRequest",
    "KeystoneUnreachable",
    "Lease",
    "LimitExceeded",
    "NotConfigured",
    "NotEnoughResources",
    "NotFound",
    "Notification",
    "NotificationsRemoved",
    "Offer",
    "OfferExpired",
    "Progress",
    "Refused",
    "Resource",
    "ServiceUnreachable",
    "SignInFailed",
    "TemporarilyUnavailable",
    "TlsFailed",
    "Unauthenticated",
    "UnexpectedAnswer",
    "WaitFailed",
    "WaitTimedOut",
    "connect",
    "flavor_instances",
    "floatingips",
    "hosts",
    "instances",
    "network",
    "reservation",
    "stack",
    "volumes",
]
