"""Resource types with minimal plugins: hosts, shares of the same hosts, and pools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa
from marshmallow import fields
from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.lease.model import Inventory, Lease, Reservation, Resource
from climate.core.matching import expression
from climate.core.matching.requirement import Layout, Requirement
from climate.core.settings import Settings
from climate.db.engine.database import Database
from climate.db.resources import capacity
from climate.db.tables.leases import ResourceProperty, ResourceRow
from climate.db.wakeup import Wakeup
from climate.manager.process.calendar_memory.memory import CalendarMemory, Use
from climate.manager.process.deletion_waits import DeletionWaits
from climate.manager.process.long_poll import LongPoll
from climate.manager.process.runtime import Runtime
from climate.observability.metrics import Metrics
from climate.plugins.base import DiscoveredResource, ResourcePlugin
from climate.plugins.request_fields import RequestSchema
from tests.conftest import NOON

HOST, INSTANCE, ADDRESS = "physical:host", "virtual:instance", "virtual:address"
# What addresses are taken from.
POOL = "network:pool"
ADDRESSES = "IPV4_ADDRESS"
# What a reservation of instances may name, by its resource class.
SIZES = {"VCPU": "vcpus", "MEMORY_MB": "memory_mb", "DISK_GB": "disk_gb", "CUSTOM_GPU": "gpus"}


class Counted(RequestSchema):
    """``min`` to ``max`` units."""

    min = fields.Integer(required=True)
    max = fields.Integer(required=True)


class HostRequest(Counted):
    """Hosts that match an expression."""

    query = fields.String(load_default="")


class InstanceRequest(HostRequest):
    """Instances of one size on hosts that match an expression."""

    vcpus = fields.Integer(load_default=0)
    memory_mb = fields.Integer(load_default=0)
    disk_gb = fields.Integer(load_default=0)
    gpus = fields.Integer(load_default=0)
    layout = fields.String(load_default=Layout.ANYWHERE.value)
    exclusive = fields.Boolean(load_default=False)


class AddressRequest(Counted):
    """Blocks of ``size`` addresses."""

    size = fields.Integer(load_default=1)


class Idle(ResourcePlugin):
    """A plugin whose start and end do nothing."""

    native_properties = frozenset({"rack"})

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        return {}

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        pass

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        raise NotImplementedError

    def inventory(self) -> Iterable[DiscoveredResource]:
        raise NotImplementedError


class Hosts(Idle):
    """Whole hosts."""

    resource_type: ClassVar[str] = HOST
    schema = HostRequest

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        return Requirement(HOST, params["min"], params["max"], expression.parse(params["query"]))


class Instances(Idle):
    """Shares of hosts."""

    resource_type: ClassVar[str] = INSTANCE
    schema = InstanceRequest

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        return Requirement(
            HOST,
            params["min"],
            params["max"],
            expression.parse(params["query"]),
            {name: params[key] for name, key in SIZES.items() if params[key]},
            Layout(params["layout"]),
            exclusive=params.get("exclusive", False),
        )


class Addresses(Idle):
    """Blocks of addresses from few resources with thousands of addresses."""

    resource_type: ClassVar[str] = ADDRESS
    schema = AddressRequest

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        anything = expression.parse("")
        return Requirement(
            POOL, params["min"], params["max"], anything, {ADDRESSES: params["size"]}
        )


PLUGINS: Mapping[str, Idle] = {HOST: Hosts(), INSTANCE: Instances(), ADDRESS: Addresses()}


def requirement(resource_type: str, params: Mapping[str, Any]) -> Requirement:
    return PLUGINS[resource_type].requirement(params)


def params(resource_type: str, **given: Any) -> dict[str, Any]:
    """Return the parameters of a reservation, with defaults."""
    return dict(PLUGINS[resource_type].schema().load(given))


def make_runtime(
    url: str, clock: Clock, *, cleaning: timedelta = timedelta(), memory: Use = Use.OFF
) -> Runtime:
    """Return a runtime with only these plugins. ``memory`` is its use of the calendar in memory."""
    settings = Settings(
        cleaning_time=cleaning,
        before_end_lead=None,
        before_start_leads=(),
        max_retries=3,
        claim_timeout=timedelta(minutes=1),
        call_timeout=600.0,
        late_after=timedelta(minutes=1),
        workers=1,
        poll_interval=1.0,
        shutdown_timeout=1.0,
        sync_interval=60.0,
        healing_interval=None,
        idempotency_time=timedelta(days=1),
    )
    database, news = Database(url), Wakeup()
    return Runtime(
        database=database,
        clock=clock,
        plugins=PLUGINS,
        settings=settings,
        wakeup=Wakeup(),
        news=news,
        latest=LongPoll(database, news, 1.0, 1),
        deletions=DeletionWaits(1),
        calendar=CalendarMemory(database, Metrics(), memory, print),
    )


@dataclass(frozen=True, slots=True)
class Thing:
    """A resource to register: its type, its rack and its capacity."""

    type: str = HOST
    rack: str = "a"
    has: Mapping[str, Inventory] = field(default_factory=dict)


def host(rack: str = "a", *, vcpus: int = 8, ratio: float = 1.0, gpus: int = 0) -> Thing:
    """Return a host with ``vcpus``, 512 MiB and 10 GiB for each, and a reserved part."""
    has = {
        "VCPU": Inventory(vcpus, 0, ratio),
        "MEMORY_MB": Inventory(vcpus * 512 + 100, 100),
        "DISK_GB": Inventory(vcpus * 10),
    }
    return Thing(HOST, rack, has | ({"CUSTOM_GPU": Inventory(gpus)} if gpus else {}))


def pool(addresses: int) -> Thing:
    return Thing(POOL, has={ADDRESSES: Inventory(addresses)})


def register(database: Database, things: Sequence[Thing]) -> list[int]:
    """Register resources; return their ids."""

    def work(session: Session) -> list[int]:
        ids = []
        for number, thing in enumerate(things):
            row = ResourceRow(
                type=thing.type, external_id=f"thing-{number}", reservable=True, created_at=NOON
            )
            session.add(row)
            session.flush()
            rack = {"name": "rack", "value": thing.rack, "native": True}
            session.execute(sa.insert(ResourceProperty).values(resource_id=row.id, **rack))
            capacity.store(session, row.id, thing.has)
            ids.append(row.id)
        return ids

    return database.write(work)
