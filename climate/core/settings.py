"""The operator's settings, which the managers and the API receive as one object."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from climate.core.lease.wait_list import WaitListRules
from climate.core.limits import NO_RULES, Rules
from climate.core.matching.property_type import Types
from climate.core.matching.query import Everything, Query
from climate.core.notifications.mail import EmailRules
from climate.core.notifications.reminder import Rule
from climate.core.notifications.subscription import NO_WEBHOOK_RULES, WebhookRules
from climate.core.provisioning import lead_time
from climate.core.provisioning.energy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """Which hosts provisioners prepare before a lease, and how early.

    ``hosts`` selects the hosts. ``share`` is the wanted fraction of leases whose hosts are all
    ready in time. ``interval`` is the time between two planning runs in seconds. Finished
    preparations and shutdowns are removed after ``kept``. With ``topics``, each node has its own
    notification topic. If ``energy`` is None, climate never switches a host off.
    """

    hosts: Query = field(default_factory=Everything)
    share: float = 0.99
    policy: lead_time.Policy = field(default_factory=lead_time.Policy)
    interval: float = 5.0
    kept: timedelta = timedelta(days=90)
    topics: bool = False
    energy: Policy | None = None


# Images of one cloud differ more than hosts of one class: one own duration outweighs the others.
_CREATION_POLICY = lead_time.Policy(
    prior=60.0, margin=1.0, shortest=1.0, longest=900.0, class_weight=0.5
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """How early climate creates servers, volumes, networks and stacks before a lease starts.

    ``share`` is the wanted fraction of leases for which all of them are ready at the start.
    ``policy`` says how the lead follows from the durations of earlier creations. These durations
    are removed if climate has created nothing of the same kind for ``kept``.
    """

    share: float = 0.99
    policy: lead_time.Policy = _CREATION_POLICY
    kept: timedelta = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """How long bare-metal nodes stay booked after a lease, while Ironic cleans them.

    ``share`` is the wanted fraction of cleanings that end in this time. ``policy`` says how the
    time follows from the durations of earlier cleanings.
    """

    share: float = 0.95
    policy: lead_time.Policy = field(
        default_factory=lambda: lead_time.Policy(shortest=1.0, longest=7200.0)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRules:
    """How long an offer may hold capacity, and how many open offers a project may have."""

    longest: timedelta = timedelta(minutes=5)
    per_project: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings for the API and the managers.

    - ``before_start_leads``, ``before_end_leads``, ``poll_interval``, ``call_timeout``,
      ``shutdown_timeout``, ``search_timeout``, ``sync_interval`` and ``self_audit_interval`` are in
      seconds. If ``self_audit_interval`` is 0, there is no self-audit.
    - ``calendar_memory``: whether a process keeps the bookings of hosts in memory; "auto" if there
      are many hosts.
    - ``healing_interval``: climate replaces failed resources of running leases, and of leases that
      start within this time (None: of all leases).
    - ``hold_timeout``: how long capacity is reserved for a new lease while an external service
      decides.
    - ``offers``: how long an offer may hold capacity, and how many a project may have open.
    - ``trust_interval``: how often managers check the Keystone trusts of leases that start within
      ``trust_ahead``.
    - ``stack_patience``: how long a Heat stack that cannot be deleted keeps its capacity booked.
    - ``notifications_kept``, ``ended_leases_kept`` and ``history_kept``: the age at which
      notifications, ended leases and the history of removed leases are removed (None: never).
    - ``email``: the rules for e-mail; None if climate sends no e-mail.
    - ``feeds_per_project``: the maximum number of calendar feeds of a project.
    - ``provisioning``: None if climate prepares no hosts.
    - ``creation``: None if climate creates nothing before the start of a lease.
    - ``cleaning``: None if climate does not learn how long the cleaning of nodes takes.
    - ``property_types``: the declared types of properties, by the name of the property.
    - ``reminder_rules``: the reminders of certain leases, instead of ``before_start_leads``.
    - ``registered_hosts``: names and patterns of the hosts that managers register themselves.
    - ``packs_hosts``: requests try the hosts with the lowest ids first, instead of random ones.
    """

    cleaning_time: timedelta
    before_end_lead: timedelta | None
    before_start_leads: tuple[int, ...]
    max_retries: int
    claim_timeout: timedelta
    call_timeout: float
    late_after: timedelta
    workers: int
    poll_interval: float
    shutdown_timeout: float
    sync_interval: float
    healing_interval: timedelta | None
    idempotency_time: timedelta
    limits: Rules = NO_RULES
    hold_timeout: timedelta = timedelta(minutes=1)
    offers: OfferRules = field(default_factory=OfferRules)
    trust_ahead: timedelta = timedelta(days=1)
    trust_interval: timedelta = timedelta(minutes=5)
    stack_patience: timedelta = timedelta(minutes=10)
    self_audit_interval: float = 0.0
    calendar_memory: Literal["auto", "on", "off"] = "auto"
    search_timeout: float = 5.0
    notifications_kept: timedelta | None = None
    ended_leases_kept: timedelta | None = None
    history_kept: timedelta | None = None
    webhooks: WebhookRules = NO_WEBHOOK_RULES
    email: EmailRules | None = None
    feeds_per_project: int = 50
    provisioning: Provisioning | None = None
    creation: Creation | None = None
    cleaning: CleaningRules | None = None
    property_types: Types = field(default_factory=dict)
    packs_hosts: bool = False
    registered_hosts: tuple[str, ...] = ()
    reminder_rules: tuple[Rule, ...] = ()
    before_end_leads: tuple[int, ...] = ()
    wait_list: WaitListRules = field(default_factory=WaitListRules)
