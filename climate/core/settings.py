"""What the operator decided, as the use cases and managers see it."""

from dataclasses import dataclass, field
from datetime import timedelta

from climate.core.limits import NO_RULES, Rules
from climate.core.matching.query import Everything, Query
from climate.core.notifications.subscription import NO_WEBHOOK_RULES, WebhookRules
from climate.core.provisioning import lead_time
from climate.core.provisioning.energy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """How hosts are got ready: which, and in what share of leases all of them in time.

    ``interval`` is the seconds between looks at what is to be got ready; ``kept`` is how long what
    became of it is known. With ``topics``, it is also told to listeners of single nodes. Without
    ``energy`` no host is switched off.
    """

    hosts: Query = field(default_factory=Everything)
    share: float = 0.99
    policy: lead_time.Policy = field(default_factory=lead_time.Policy)
    interval: float = 5.0
    kept: timedelta = timedelta(days=90)
    topics: bool = False
    energy: Policy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The decisions of the operator that use cases and managers depend on.

    ``before_start_leads``, ``poll_interval``, ``call_timeout``, ``shutdown_timeout`` and
    ``sync_interval`` are seconds; without a ``healing_interval`` leases are healed however far
    ahead. ``hold_timeout`` is how long a lease is held while somebody thinks about it. The trusts
    of leases that start within ``trust_ahead`` are looked at every ``trust_interval``.
    ``stack_patience`` is how long the room of a stack is left to it that cannot be ended. With
    ``self_audit_interval`` 0 (seconds) managers do not check the invariants; without
    ``notifications_kept`` all notifications are kept, without ``provisioning`` nobody gets hosts
    ready.
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
    trust_ahead: timedelta = timedelta(days=1)
    trust_interval: timedelta = timedelta(minutes=5)
    stack_patience: timedelta = timedelta(minutes=10)
    self_audit_interval: float = 0.0
    notifications_kept: timedelta | None = None
    webhooks: WebhookRules = NO_WEBHOOK_RULES
    provisioning: Provisioning | None = None
