"""The plug-in for ``virtual:stack``: a Heat stack, with capacity for its maximum contents.

The reservation of a stack itself has no resources. Other reservations of the same lease, the
members of the stack, reserve the capacity for its servers, volumes and floating IPs. climate counts
these in Heat's preview of the stack, with all groups at their maximum size.

Before the lease is confirmed, climate creates an empty stack with the requester's token, because a
trust can update a stack but not create one. At the start, climate updates this stack to a template
that uses the reserved flavors, volume types and floating IPs. A tag on the stack, called the plan,
identifies the source that climate deployed last. The source is the template with its files,
parameters and environment.

While the lease runs, users may also update the stack with requests to Heat. climate finds such a
change (``changed_in_cloud``), reserves what it needs, and then deploys the changed source on the
reserved resources. Until climate can reserve it, the stack stays as the users left it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.clock import Clock
from climate.core.errors import Conflict
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import (
    CREATE,
    DEPLOYED_SOURCE,
    FOLLOWED_UPDATE,
    NOTHING,
    ON_START,
    STACK_ID,
    Granted,
    Lease,
    Reservation,
)
from climate.core.lease.on_start import creates
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    KEEP,
    CloudChange,
    DiscoveredResource,
    Drift,
    ExpectedState,
    Member,
    NotYet,
    Requester,
    ResourcePlugin,
    Turn,
)
from climate.plugins.loader import load_cloud
from climate.plugins.request_fields import RequestSchema
from climate.plugins.stacks import members as stack_members
from climate.plugins.stacks import template
from climate.plugins.stacks.audit import find_drifts
from climate.plugins.stacks.cloud import Stack, StackCloud
from climate.plugins.stacks.contents import count_contents
from climate.plugins.stacks.schema import SUSPEND, StackSchema, source_of, stored
from climate.plugins.stacks.template import Source

# The times of Heat have no fractions of a second, so two updates in quick succession look the same.
_UNCERTAIN = timedelta(minutes=1)
_SUSPENDED = "SUSPEND_COMPLETE"
# climate resumes stacks with one of these last actions before it changes them.
_SUSPEND_ACTIONS = ("SUSPEND", "RESUME")


class StackFailed(RuntimeError):
    """Raised if Heat could not complete an action, or if the stack is gone before the start."""


class StackPlugin(ResourcePlugin):
    """The plug-in for stacks, which reserves capacity for them and deploys them at the start."""

    resource_type: ClassVar[str] = "virtual:stack"
    title: ClassVar[str] = "Stacks"
    description: ClassVar[str] = "All that a Heat template needs, deployed at the start."
    booked_type: ClassVar[str | None] = ""
    schema: ClassVar[type[RequestSchema]] = StackSchema
    fixed: ClassVar[frozenset[str]] = frozenset({"stack_id", "stack_name", "on_start"})
    unfixed: ClassVar[frozenset[tuple[str, Any, Any]]] = frozenset({(ON_START, NOTHING, CREATE)})
    looks_up_changes: ClassVar[bool] = True
    follows_changes: ClassVar[bool] = True
    native_properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts, turn: Turn, clock: Clock) -> None:
        self._clock = clock
        self.cloud: StackCloud = load_cloud("virtual:stack", conf, turn=turn)
        # By stack id: the last update, and the fingerprint of the source, if the stack has it.
        self._unchanged: dict[str, tuple[datetime | None, str]] = {}
        # By stack id, while an update is in progress: the plan that this process has sent, and when
        # the reservation had changed before that.
        self._sent: dict[str, tuple[str, datetime | None]] = {}

    def look_up(self, params: Mapping[str, Any], requester: Requester) -> Mapping[str, Any]:
        """Return ``params`` with the stack's source and, as ``reserves``, its maximum contents."""
        source = source_of(params)
        if source is None:
            source = self.cloud.source(requester, params["stack_id"])
            params = {**params, **stored(source)}
        flavors, copy = self.cloud.flavors(requester), source
        for edit in (
            template.at_maximum,
            template.with_flavors(flavors.respelled),
            template.noting_volume_types,
        ):
            copy = template.edited(copy, edit)
        contents = count_contents(self.cloud.preview(requester, copy), source, flavors)
        networks = self.cloud.networks(requester, contents.floatingips.keys())
        return {
            **params,
            "reserves": stack_members.plan_reserves(params, contents, flavors, networks),
        }

    def members(self, params: Mapping[str, Any]) -> Sequence[Member]:
        return stack_members.members_of(params)

    def source_of(self, params: Mapping[str, Any]) -> str:
        source = source_of(params)
        return "" if source is None else source.template_id

    def requirement(self, _params: Mapping[str, Any]) -> Requirement:
        """Return a requirement for no resources: the stack's members reserve the resources."""
        return Requirement(self.resource_type, 0, 0, Everything(), noun="stacks")

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        return self.cloud.knows_users and creates(params)

    def prepares(self, params: Mapping[str, Any]) -> bool:
        """Return whether climate creates the stack, and does not use an existing one."""
        return creates(params) and params["stack_id"] is None

    def prepare(
        self, _lease: Lease, reservation: Reservation, requester: Requester
    ) -> Mapping[str, Any]:
        """Create the empty stack that ``start`` will update; return its id and name."""
        params = reservation.params
        if not self.prepares(params):
            return {}
        name = params["stack_name"] or f"climate-{reservation.id}"
        stack = self.cloud.make_empty(requester, name, reservation.id)
        return {STACK_ID: stack.id, "stack_name": stack.name}

    def discard(self, lease: Lease, reservation: Reservation) -> None:
        """Delete the stack that ``prepare`` created, if it is still empty.

        If climate has already deployed a template to the stack, do nothing.
        """
        stack = self.cloud.find_marked(lease.project_id, reservation.id)
        if stack is not None and stack.plan is None:
            self._delete(stack)

    def start(
        self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Update the stack to a template that uses the resources of the member reservations.

        If users have updated a running stack themselves, the stack stays as it is until the
        reservation has the parameters that ``changed_in_cloud`` returns. Raises NotYet until the
        update is complete, and StackFailed if it fails.
        """
        if not creates(reservation.params):
            return {}
        stack = self._get(lease, reservation)
        if stack is None:
            raise StackFailed(f"stack {self._id(reservation)} was deleted")
        source = self._reserved_source(lease, reservation)
        was_sent = self._was_sent(stack, reservation, source)
        is_current = not was_sent or self._current(stack) == source.normal
        if was_sent:
            is_users = not is_current and self._users_source(lease, reservation, stack) is not None
        else:
            followed, of_source = reservation.details.get(FOLLOWED_UPDATE, (None, None))
            is_followed = of_source == self._source(reservation).fingerprint
            is_users = is_followed and followed != _update_of(stack)
        if not is_users:  # else ``changed_in_cloud`` must find it first
            if reservation.status is not ReservationStatus.ACTIVE:
                self._resume(stack)
            self._deploy(lease, stack, source, reservation, is_current=is_current)
        self._sent.pop(stack.id, None)
        return {
            STACK_ID: stack.id,
            "stack_name": stack.name,
            "deployed": True,
            DEPLOYED_SOURCE: self._source(reservation).fingerprint,
        }

    def _was_sent(self, stack: Stack, reservation: Reservation, source: Source) -> bool:
        """Return whether climate has sent ``source`` to Heat before.

        Then any difference is a change of the users. If they made it during the update, neither
        the details nor the tags need to show that climate has sent the source.
        """
        plan = _plan(reservation.id, source)
        deployed = reservation.details.get(DEPLOYED_SOURCE)
        is_same = deployed == self._source(reservation).fingerprint
        is_in_progress = self._sent.get(stack.id) == (plan, reservation.updated_at)
        return is_same or stack.plan == plan or is_in_progress

    def changed_in_cloud(self, lease: Lease, reservation: Reservation) -> CloudChange | None:
        """Return the stack's source as parameters, if it is not what climate has deployed."""
        stack = self._get(lease, reservation) if creates(reservation.params) else None
        if stack is None:
            return None
        _wait(stack)
        deployed = self._reserved_source(lease, reservation).normal
        state = (stack.updated_at, deployed.fingerprint)
        if self._unchanged.get(stack.id) == state:
            return None
        if self._current(stack) == deployed:
            if stack.updated_at and self._clock.now() - stack.updated_at > _UNCERTAIN:
                self._unchanged[stack.id] = state
            return None
        source = self._users_source(lease, reservation, stack) or self._source(reservation)
        followed = [_update_of(stack), source.fingerprint]
        return CloudChange(stored(source), {FOLLOWED_UPDATE: followed})

    def _current(self, stack: Stack) -> Source:
        """Return the present source of the stack. Raises NotYet while Heat is changing it."""
        _wait(stack)
        return self.cloud.current(stack).normal

    def _users_source(self, lease: Lease, reservation: Reservation, stack: Stack) -> Source | None:
        """Return the present source of the stack without climate's edits.

        Returns None if it is the source in the parameters of the reservation. Raises NotYet while
        Heat is changing the stack.
        """
        original = self._source(reservation)
        # Also of members that the lease no longer has: the stack may still use their types.
        members = [each for each in lease.reservations if each.stack_id == reservation.id]
        types = stack_members.reserved_types(members)
        users = template.restored(self._current(stack), original, types)
        own = template.restored(self._reserved_source(lease, reservation), original, types)
        return None if users in (own, original.normal) else users

    def _reserved_source(self, lease: Lease, reservation: Reservation) -> Source:
        members = self._members(lease, reservation)
        return stack_members.reserved(self._source(reservation), reservation.params, members)

    def _members(self, lease: Lease, reservation: Reservation) -> list[Reservation]:
        return [
            each for each in lease.reservations if each.stack_id == reservation.id and each.stays
        ]

    def end(self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]) -> None:
        """Delete, suspend or keep the stack, as the parameter ``on_end`` says.

        Before climate suspends or keeps the stack, it updates the stack to the original source, or
        to what the users have made of it, so that the stack no longer uses reserved resources.
        Raises NotYet until all actions are complete, and StackFailed if one fails.
        """
        stack = self._get(lease, reservation)
        if stack is None:  # or on_start was nothing, and climate does not know it
            return
        self._sent.pop(stack.id, None)
        self._unchanged.pop(stack.id, None)
        on_end, is_climates = reservation.params["on_end"], reservation.params["stack_id"] is None
        is_empty = is_climates and not _was_deployed(stack, reservation)
        if on_end == KEEP and not is_empty:
            if stack.reservation_id == reservation.id:
                self._deploy(lease, stack, self._kept_source(lease, reservation, stack), None)
        elif on_end == SUSPEND and not is_empty:
            self._suspend(lease, stack, reservation)
        else:
            self._delete(stack)

    def stop(
        self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Delete the contents of a stack that climate created; suspend any other stack.

        The empty stack stays, because the lease's trust cannot create another one. Raises NotYet
        until all actions are complete, and StackFailed if one fails.
        """
        stack = self._get(lease, reservation)
        if stack is None:
            return {}
        if reservation.params["stack_id"] is None:
            self._empty(lease, stack, reservation.id)
        else:
            self._suspend(lease, stack, reservation)
        return {STACK_ID: stack.id, "stack_name": stack.name}

    def _empty(self, lease: Lease, stack: Stack, reservation_id: str) -> None:
        """Update the stack to a template without resources.

        Raises NotYet until the update is complete, and StackFailed if it fails.
        """
        _wait(stack)
        tags, source = stack.tags_for(reservation_id, None), Source(template.EMPTY)
        if stack.plan is not None or stack.reservation_id != reservation_id:
            self._resume(stack)
            self.cloud.update(lease, stack, source, tags)
            raise NotYet(f"stack {stack.id} is being emptied")
        if stack.status == "UPDATE_FAILED":
            self._retry(stack, lambda: self.cloud.update(lease, stack, source, tags), "emptied")

    def _id(self, reservation: Reservation) -> str | None:
        id_: str | None = reservation.params["stack_id"] or reservation.details.get(STACK_ID)
        return id_

    def _get(self, lease: Lease, reservation: Reservation) -> Stack | None:
        if id_ := self._id(reservation):
            return self.cloud.find(lease.project_id, id_)
        # With on_start nothing, a change that failed may have left an empty stack.
        return self.cloud.find_marked(lease.project_id, reservation.id)

    def _source(self, reservation: Reservation) -> Source:
        source = source_of(reservation.params)
        assert source is not None  # noqa: S101 - look_up stores it
        return source

    def _kept_source(self, lease: Lease, reservation: Reservation, stack: Stack) -> Source:
        """Return the source that a stack keeps after the lease. Raises NotYet as ``_current``."""
        original = self._source(reservation)
        if DEPLOYED_SOURCE not in reservation.details:
            return original
        return self._users_source(lease, reservation, stack) or original

    def _resume(self, stack: Stack) -> None:
        """Resume the stack if it is suspended.

        Raises NotYet until the stack is resumed, and StackFailed if Heat cannot resume it.
        """
        _wait(stack)
        if stack.action in _SUSPEND_ACTIONS and stack.status != "RESUME_COMPLETE":
            self._retry(stack, lambda: self.cloud.resume(stack), "resumed")

    def _deploy(
        self,
        lease: Lease,
        stack: Stack,
        source: Source,
        reservation: Reservation | None,
        *,
        is_current: bool = True,
    ) -> None:
        """Update the stack to ``source``, and set its tags.

        If ``reservation`` is None, remove the mark of the reservation. If ``is_current`` is
        false, update the stack even if its tags say that it has this source. Raises NotYet until
        the update is complete, and StackFailed if it fails.
        """
        _wait(stack)
        reservation_id = None if reservation is None else reservation.id
        plan = _plan(reservation_id, source)
        tags = stack.tags_for(reservation_id, plan)
        if stack.plan != plan or not is_current:
            self._resume(stack)
            self.cloud.update(lease, stack, source, tags)
            if reservation is not None:
                self._sent[stack.id] = plan, reservation.updated_at
            raise NotYet(f"stack {stack.id} is being updated")
        if stack.status == "UPDATE_FAILED":
            self._retry(stack, lambda: self.cloud.update(lease, stack, source, tags), "updated")

    def _suspend(self, lease: Lease, stack: Stack, reservation: Reservation) -> None:
        """Update the stack to its original source, then suspend the stack.

        A suspended stack keeps its servers, so the update moves them from the reserved flavors to
        the original ones. Raises NotYet until the stack is suspended, and StackFailed if the update
        or the suspension fails.
        """
        _wait(stack)
        source = self._kept_source(lease, reservation, stack)
        deployed = _was_deployed(stack, reservation)
        if deployed and (stack.plan != source.fingerprint or stack.action == "UPDATE"):
            self._deploy(lease, stack, source, None)
        if stack.status != _SUSPENDED:
            self._retry(stack, lambda: self.cloud.suspend(stack), "suspended")

    def _delete(self, stack: Stack) -> None:
        """Delete the stack. Raises NotYet until Heat has deleted it, StackFailed if Heat fails."""
        if stack.status == "DELETE_IN_PROGRESS":
            raise NotYet(f"stack {stack.id} is being deleted")
        self._retry(stack, lambda: self.cloud.delete(stack), "deleted")

    def _retry(self, stack: Stack, act: Callable[[], None], participle: str) -> None:
        """Begin an action on the stack by calling ``act``; then always raise.

        If the stack's previous action failed, raises StackFailed with Heat's reason. Otherwise
        raises NotYet, because the new action takes time. ``participle`` names the new action in the
        message, such as "updated".
        """
        act()
        if stack.has_failed:
            raise StackFailed(f"stack {stack.id} is {stack.status}: {stack.reason}")
        raise NotYet(f"stack {stack.id} is being {participle}")

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        return find_drifts(self.cloud, self._clock, expected)

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        raise Conflict(
            f"{name or external_number}: register hosts, volume types and floating IPs, not"
            f" {self.resource_type}"
        )

    def inventory(self) -> Iterable[DiscoveredResource]:
        return ()


def _plan(reservation_id: str | None, source: Source) -> str:
    """Return the plan for a source: an id of at most 41 characters, as a tag has at most 80."""
    prefix = f"{reservation_id[-8:]}-" if reservation_id else ""
    return f"{prefix}{source.fingerprint}"


def _update_of(stack: Stack) -> str:
    """Return an id of the stack's last update."""
    return str(stack.updated_at)


def _was_deployed(stack: Stack, reservation: Reservation) -> bool:
    """Return whether climate has deployed a source to the stack.

    A user's update without tags removes the plan, so the details count, too.
    """
    return stack.plan is not None or bool(reservation.details.get("deployed"))


def _wait(stack: Stack) -> None:
    if stack.is_busy:
        raise NotYet(f"stack {stack.id} is {stack.status}")
