"""Limits of projects and users, checked in the transaction of the admission.

A *party* is a project or a user. The *use* of a party is what its leases have booked. To check a
limit on the use or on the number of leases, the transaction locks the party's row, and then counts.
So, of two parallel requests of a project, the second waits, and then counts the use of the first.
To avoid deadlocks, each transaction locks first the project's row, then the user's row, and only
then resources. It does not lock the rows of parties without such a limit. For an exempt requester,
``LimitGate`` executes no statement.

If limits are disabled, only ``OpenLeasesGate`` applies: it limits the number of open leases of a
project.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core import limits as rules
from climate.core.errors import InvalidInput, LimitExceeded
from climate.core.lease.change import has_started
from climate.core.lease.model import Lease
from climate.core.limits import AMOUNTS, NAMES, Excess, Limits, Rules, Scope, Use
from climate.core.window import Window
from climate.db import limits as rows
from climate.db.engine.database import Database
from climate.db.limits import Overrides, Party, UseOf
from climate.db.resources.booking_statement import BookingPlan, OpenLeases
from climate.manager.admission.gates import Gate, Taken
from climate.manager.process.runtime import Store

_MAX_LIMIT = 2**31 - 1  # a 32-bit column


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How much of its limits a project or a user uses now.

    ``leases`` is the number of leases that are not over. ``host_hours`` is the highest sum of hosts
    times hours in any span with the length of the limits' period (for example 30 days). The other
    numbers are the highest ones that are booked at the same time, now or later.
    """

    leases: int
    hosts: int
    vcpus: float
    gigabytes: int = 0
    floatingips: int = 0
    networks: int = 0
    host_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The limits of one project or one user, and how much of them it uses.

    ``owner_id`` is the id of the project or user. ``limits`` are the limits that apply to it.
    ``overrides`` contains only the limits that an operator set for this project or user, by name.
    """

    scope: Scope
    owner_id: str
    limits: Limits
    overrides: Mapping[str, int]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Checks one request against the limits of the lease's project and user.

    ``limits`` maps each party (the project and the user) to its limits. It is empty if the
    requester is exempt. If a limit requires a count (of leases or of booked resources), the
    transaction has locked the party's row. So no parallel request can change the count.
    """

    period: timedelta = timedelta(0)
    limits: Mapping[Party, Limits] = field(default_factory=dict)

    def check_dates(self, lease: Lease | None, window: Window, now: datetime) -> None:
        """Raise LimitExceeded if a limit on dates forbids ``window``, the requested start and end.

        Such limits are, for example, the longest duration of a lease. ``lease`` is the stored
        lease, before the change; None for a new lease.
        """
        before = lease.window if lease else None
        started = lease is not None and has_started(lease, now)
        for party, limits in self.limits.items():
            excess = rules.excess_of_dates(limits, before, window, now, started=started)
            self._check(party, excess)

    def check_count(self, session: Session, lease_id: str | None, now: datetime) -> None:
        """Raise LimitExceeded if the project or user may not have one more lease.

        ``lease_id`` is the id of the new lease; None if it is not stored. The function counts the
        other leases that are not over.
        """
        for party, limits in self.limits.items():
            if limits.leases is not None:
                others = rows.count_leases(session, party, now, excluding=lease_id)
                self._check(party, rules.excess_of_leases(limits, others))

    def uses_of(self, session: Session, lease: Lease) -> list[Use]:
        """Return what a lease has booked, with start and end.

        The list is empty if no limit concerns booked resources.
        """
        return rows.uses_of(session, lease.id) if self._counted else []

    def check_use(
        self,
        session: Session,
        lease_id: str | None,
        window: Window,
        before: Sequence[Use],
        after: Sequence[Use] | None = None,
    ) -> None:
        """Raise LimitExceeded if a lease would book more resources than a limit allows.

        ``window`` is the start and end of the lease. ``lease_id`` is None if it is not stored.
        ``before`` contains what the lease has booked before the request (empty for a new lease).
        ``after`` contains the same after the request (None: read it from the database). The
        function adds the use of all other leases of the same project or user. If the limit was
        already exceeded before the request, the function rejects only a change that increases the
        excess.
        """
        if not self._counted:
            return
        hours = any(limits.host_hours is not None for limits in self._counted.values())
        # All windows of the period's length that overlap the lease.
        period = self.period if hours else timedelta(0)
        start, end = window.start - period, window.busy(period).end
        uses = rows.uses(session, list(self._counted), start, end, past_too=hours)
        if after is None:
            after = [entry.use for entry in uses if entry.lease_id == lease_id]
        for party, limits in self._counted.items():
            others = [e.use for e in uses if not _is_of(e, lease_id) and e.is_of(party)]
            excess = rules.excess_of_use(limits, self.period, others, before, after)
            self._check(party, excess)

    @property
    def _counted(self) -> dict[Party, Limits]:
        return {party: limits for party, limits in self.limits.items() if limits.counts_use}

    def _check(self, party: Party, excess: Excess | None) -> None:
        if excess is not None:
            raise rules.limit_exceeded(party.scope, party.owner_id, self.period, excess)


class LimitGate(Gate):
    """Rejects a lease if its project or user would exceed a limit."""

    def __init__(self, rules: Rules, roles: Collection[str]) -> None:
        self._rules = rules
        self._roles = roles
        self._limit = Guard()
        self._present: Lease | None = None
        self._used: Sequence[Use] = ()

    def before_refusal(self, session: Session, lease: Lease, now: datetime) -> bool:
        """Check the dates of the lease, and read the limits for the hook ``allows``."""
        owner = lease.project_id, lease.user_id
        self._limit = guard_without_lock(session, self._rules, *owner, self._roles)
        self._limit.check_dates(None, lease.window, now)
        return True

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Lock the rows of the project and the user, and check the dates of the lease.

        ``lease`` is the lease as requested. ``present`` is the stored lease before the change; None
        for a new lease. If there is a stored lease, also read which resources it has booked. Raises
        LimitExceeded.
        """
        self._limit = guard(session, self._rules, lease, self._roles)
        self._limit.check_dates(present, lease.window, now)
        self._present = present
        self._used = [] if present is None else self._limit.uses_of(session, present)

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Raise LimitExceeded if the lease or its bookings exceed a limit.

        The transaction has stored the lease and the bookings, but is not committed yet.
        """
        if self._present is None:
            self._limit.check_count(session, lease.id, now)
        self._limit.check_use(session, lease.id, lease.window, self._used)

    def allows(self, session: Session, lease: Lease, taken: Taken, now: datetime) -> bool:
        """Return whether the limits allow a lease that climate may suggest after a rejection.

        The suggested lease is not stored. ``taken`` contains the resources that the lease would
        book.
        """
        if not self._limit.limits:
            return True
        start = max(lease.window.start, now)
        after = [rows.use_of(session, taken, start, lease.window.end)]
        try:
            self._limit.check_dates(self._present, lease.window, now)
            if self._present is None:
                self._limit.check_count(session, lease.id, now)
            self._limit.check_use(session, lease.id, lease.window, self._used, after)
        except LimitExceeded:
            return False
        return True


class OpenLeasesGate(Gate):
    """Rejects a new lease if its project has the maximum number of open leases.

    A lease is open until it is over. This gate protects the database from very many leases if all
    other limits are disabled. It locks nothing, so parallel requests may exceed the maximum.
    """

    def __init__(self, rules: Rules, roles: Collection[str]) -> None:
        self._rules = rules
        self._roles = roles

    def before_refusal(self, _session: Session, _lease: Lease, _now: datetime) -> bool:
        """Allow the refusal: it does not matter whether the limit would allow the lease."""
        return True

    def planned(self, plan: BookingPlan, lease: Lease) -> BookingPlan:
        """Return the plan with the limit of the project."""
        most = self._rules.effective(Scope.PROJECT, {}).leases
        if most is None or not self._applies_to(lease):
            return plan
        limit = OpenLeases(project_id=lease.project_id, most=most, now=lease.created_at)
        return replace(plan, open_leases=limit)

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Raise LimitExceeded if the project already has its maximum number of open leases.

        ``present`` is the stored lease; None for a new lease. Only a new lease is checked.
        """
        if present is not None or not self._applies_to(lease):
            return
        party = Party(Scope.PROJECT, lease.project_id)
        own, count = rows.open_leases(session, party, now)
        excess = rules.excess_of_leases(self._rules.effective(party.scope, own), count)
        if excess is not None:
            raise rules.limit_exceeded(party.scope, party.owner_id, self._rules.period, excess)

    def _applies_to(self, lease: Lease) -> bool:
        return self._rules.apply_to(lease.project_id, lease.user_id, self._roles)


def guard(session: Session, settings: Rules, lease: Lease, roles: Collection[str]) -> Guard:
    """Return a Guard, which checks the requested ``lease`` against the limits.

    ``roles`` are the requester's roles; the operator can exempt a role from all limits. If a limit
    of the project or user requires a count of leases or booked resources, the function locks the
    row of that project or user.
    """
    if not settings.apply_to(lease.project_id, lease.user_id, roles):
        return Guard()
    parties = parties_of(lease.project_id, lease.user_id)
    limited = _limited(settings, parties, rows.overrides(session, parties))
    counted = [party for party, limits in limited.items() if limits.counts]
    if counted:  # the limits may have changed between the first read and the lock
        others = {party: limits for party, limits in limited.items() if not limits.counts}
        limited = others | _limited(settings, counted, rows.lock(session, counted))
    return Guard(period=settings.period, limits=limited)


def guard_without_lock(
    session: Session, settings: Rules, project_id: str, user_id: str, roles: Collection[str]
) -> Guard:
    """Return a Guard for a search: parallel requests may change the use before a lease is created.

    The Guard contains no limits if limits are disabled, or if the requester is exempt.
    """
    if not (settings.enabled and settings.apply_to(project_id, user_id, roles)):
        return Guard()
    parties = parties_of(project_id, user_id)
    limited = _limited(settings, parties, rows.overrides(session, parties))
    return Guard(period=settings.period, limits=limited)


def _is_of(entry: UseOf, lease_id: str | None) -> bool:
    return lease_id is not None and entry.lease_id == lease_id


def parties_of(project_id: str, user_id: str) -> list[Party]:
    """Return the project and the user as parties, in the order in which transactions lock them."""
    return [Party(Scope.PROJECT, project_id), Party(Scope.USER, user_id)]


def _limited(
    settings: Rules, parties: Sequence[Party], overrides: Overrides
) -> dict[Party, Limits]:
    limited = {party: _effective(settings, party, overrides) for party in parties}
    return {party: limits for party, limits in limited.items() if limits != Limits()}


def _effective(settings: Rules, party: Party, overrides: Overrides) -> Limits:
    return settings.effective(party.scope, overrides.get(party, {}))


def show(store: Store, settings: Rules, parties: Sequence[Party]) -> list[Account]:
    """Return the limits and their present use, for each project or user in ``parties``.

    If ``parties`` is empty, the result contains all projects and users for which an operator set
    limits that differ from the configuration.
    """
    with store.database.read() as session:
        return accounts(session, settings, parties, store.clock.now())


def accounts(
    session: Session, settings: Rules, parties: Sequence[Party], now: datetime
) -> list[Account]:
    """Return the limits and their present use, for each project or user in ``parties``.

    The numbers include changes that the transaction of ``session`` has not committed yet. If
    ``parties`` is empty, the result contains all projects and users for which an operator set
    limits that differ from the configuration.
    """
    overrides = rows.overrides(session, parties) if parties else rows.all_overrides(session)
    return [
        Account(
            scope=party.scope,
            owner_id=party.owner_id,
            limits=_effective(settings, party, overrides),
            overrides=overrides.get(party, {}),
            usage=_usage(session, party, now, settings.period),
        )
        for party in parties or overrides
    ]


def _usage(session: Session, party: Party, now: datetime, period: timedelta) -> Usage:
    uses = [entry.use for entry in rows.uses(session, [party], now - period, past_too=True)]
    future = [replace(use, start=max(use.start, now)) for use in uses]
    peaks = {name: rules.peak([], [], future, name)[0] for name in AMOUNTS}
    return Usage(
        leases=rows.count_leases(session, party, now),
        vcpus=peaks.pop("vcpus"),
        host_hours=rules.most_hours(uses, now, period),
        **{name: int(peak) for name, peak in peaks.items()},
    )


def is_known(database: Database, party: Party) -> bool:
    """Return whether climate ever had a lease of a project or user, or has its own limits."""
    with database.read() as session:
        return rows.is_known(session, party)


def set_own(database: Database, party: Party, values: Mapping[str, int]) -> None:
    """Set some limits of one project or user; they then replace the configured values.

    ``values`` maps the name of a limit to its new value, for example ``{"hosts": 10}``; -1 means
    unlimited. Other limits stay as they are. Raises InvalidInput for an unknown name or a value out
    of range.
    """
    _check_names(values)
    for name, value in values.items():
        if not -1 <= value <= _MAX_LIMIT:
            raise InvalidInput(f"Limit {name} must be -1 (unlimited) or from 0 to {_MAX_LIMIT}")
    _change(database, party, lambda present: {**present, **values})


def unset_own(database: Database, party: Party, names: Collection[str] = ()) -> None:
    """Remove limits that were set for one project or user; the configured values apply again.

    ``names`` are the limits to remove; if it is empty, all are removed. Raises InvalidInput for an
    unknown name.
    """
    _check_names(names)
    kept = set(NAMES).difference(names) if names else set()
    _change(database, party, lambda old: {key: old[key] for key in old if key in kept})


def _check_names(names: Collection[str]) -> None:
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise InvalidInput(
            f"There is no limit {', '.join(unknown)} (there are: {', '.join(NAMES)})"
        )


def _change(
    database: Database, party: Party, change: Callable[[Mapping[str, int]], Mapping[str, int]]
) -> None:
    def work(session: Session) -> None:
        present = rows.lock(session, [party]).get(party, {})
        rows.replace(session, party, change(present))

    database.write(work)
