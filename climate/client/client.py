"""The client: the entry point of the Python library."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from climate.client import connection
from climate.client.leases import Leases, Offers
from climate.client.models import Model
from climate.client.notifications import Feeds, Notifications, Subscriptions
from climate.client.operations import Operations
from climate.client.resources import Capacity, Resources
from climate.client.transport import Transport

if TYPE_CHECKING:  # takes a third of a second, which `climate --help` does not need
    from keystoneauth1.session import Session


class Party(Model, frozen=True, kw_only=True):
    """A user or a project."""

    id: str
    name: str


class Me(Model, frozen=True, kw_only=True):
    """The caller, what the policy allows it, and what the service offers."""

    user: Party
    project: Party
    roles: list[str]
    allowed: dict[str, bool]
    now: datetime
    expires_at: datetime | None = None
    cleaning_time: int
    resource_types: list[str]
    features: dict[str, bool]
    authentication: str


class Client:
    """A client of climate's API v2. ``transport`` sends requests that no method covers."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.leases = Leases(transport)
        self.offers = Offers(transport)
        self.resources = Resources(transport)
        self.capacity = Capacity(transport)
        self.notifications = Notifications(transport)
        self.subscriptions = Subscriptions(transport)
        self.feeds = Feeds(transport)
        self.operations = Operations(transport)

    @property
    def url(self) -> str:
        """The URL of the API."""
        return self.transport.url

    def me(self) -> Me:
        """Return who the caller is, what it may do, and what the service offers."""
        return self.transport.get("/me", Me)


def connect(
    cloud: str | None = None,
    *,
    session: "Session | None" = None,
    endpoint: str | None = None,
    environ: Mapping[str, str] = os.environ,
    **options: Any,
) -> Client:
    """Return a client. No request is sent before its first use.

    ``cloud`` names a cloud of clouds.yaml. Without it, the ``OS_*`` variables in ``environ`` say
    where the service is and how to sign in; ``options`` take precedence, and are named like them:
    ``auth_type="none"``, ``region_name="RegionOne"``. With a keystoneauth ``session``, only its
    catalog is used. ``endpoint`` is the URL of climate if there is no catalog, or instead of it.
    Raises NotConfigured.
    """
    if session is not None:
        place = connection.place_of(session, {connection.OVERRIDE: endpoint, **options})
    else:
        given = {"cloud": cloud, "endpoint": endpoint, **options}
        place = connection.open_place(given, environ)
    return Client(Transport(*place))
