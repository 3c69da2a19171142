"""``virtual:stack``: a stack of Heat, with room for all that it can ever consist of.

Heat is asked what that is when the lease is asked for, groups at their maximum. A stack takes no
resource of its own: its servers, volumes and floating IPs are children, reservations of the same
lease. At the start it is made of the template in which flavors, volume types and floating IPs are
the reserved ones. An empty stack is there before that, made with the asker's own token: Heat lets
nobody make one in somebody's name later, but change one.

What a stack is now is in its status, and what we deployed last in a tag of its own, so whoever
comes back knows what is left to be done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.clock import Clock
from climate.core.errors import Conflict
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    Asker,
    Child,
    Difference,
    Expected,
    Found,
    NotYet,
    RequestSchema,
    ResourcePlugin,
    Turn,
)
from climate.plugins.loader import load_cloud
from climate.plugins.networking.base import CREATE, KEEP
from climate.plugins.stacks import children as stack_children
from climate.plugins.stacks import template
from climate.plugins.stacks.cloud import Stack, StackCloud
from climate.plugins.stacks.contents import counted
from climate.plugins.stacks.schema import SUSPEND, StackSchema, source_of, stored
from climate.plugins.stacks.template import Source

# One that is younger may be of a lease that is just being asked for.
_NEW = timedelta(hours=1)


def differences(
    cloud: StackCloud, clock: Clock, expected: Callable[[], Expected]
) -> Iterator[Difference]:
    """Name every stack of no lease."""
    now = clock.now()
    marked = [one for one in cloud.marked() if not _is_new(one, now)]
    told = expected()
    known = {*told.known, *told.awaited}
    for stack in marked:
        if stack.reservation_id not in known:
            yield Difference(
                f"stack {stack.id} ({stack.name}) of project {stack.project_id} is marked as that"
                f" of {stack.reservation_id}, which no lease has",
                partial(cloud.delete, stack),
                reservation_id=stack.reservation_id,
            )


def _is_new(stack: Stack, now: datetime) -> bool:
    return stack.created_at is not None and now - stack.created_at < _NEW


_SUSPENDED = "SUSPEND_COMPLETE"
# Stacks of which the last action was one of these are resumed before anything else.
_ASLEEP = ("SUSPEND", "RESUME")


class StackFailed(RuntimeError):
    """The cloud could not do it; the message is its own."""


class StackPlugin(ResourcePlugin):
    """Stacks."""

    resource_type: ClassVar[str] = "virtual:stack"
    schema: ClassVar[type[RequestSchema]] = StackSchema
    fixed: ClassVar[frozenset[str]] = frozenset({"stack_id", "stack_name", "on_start"})
    arranges: ClassVar[bool] = True
    replans: ClassVar[bool] = True
    native_properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts, turn: Turn, clock: Clock) -> None:
        """Load the configured cloud driver."""
        self._clock = clock
        self.cloud: StackCloud = load_cloud("virtual:stack", conf, turn=turn)

    def look_up(self, params: Mapping[str, Any], asker: Asker) -> Mapping[str, Any]:
        """Return ``params`` with what the stack consists of at most, as the cloud says.

        Raises InvalidInput for what cannot be known, or not be put on reserved room.
        """
        source = source_of(params)
        if source is None:
            source = self.cloud.source(asker, params["stack_id"])
            params = {**params, **stored(source)}
        flavors, copy = self.cloud.flavors(asker), source
        for edit in (
            template.at_maximum,
            template.with_flavors(flavors.respelled),
            template.noting_volume_types,
        ):
            copy = template.edited(copy, edit)
        contents = counted(self.cloud.preview(asker, copy), source, flavors)
        networks = self.cloud.networks(asker, contents.floatingips.keys())
        return {**params, "reserves": stack_children.planned(params, contents, flavors, networks)}

    def children(self, params: Mapping[str, Any]) -> Sequence[Child]:
        """Return what is to be reserved for what the stack consists of."""
        return stack_children.children_of(params)

    def requirement(self, _params: Mapping[str, Any]) -> Requirement:
        """Nothing: its children need it all."""
        return Requirement(self.resource_type, 0, 0, Everything(), noun="stacks")

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        """Only its user can change a stack; to suspend or delete it we can ourselves."""
        return self.cloud.knows_users and params["on_start"] == CREATE

    def arrange(self, _lease: Lease, reservation: Reservation, asker: Asker) -> Mapping[str, Any]:
        """Make the empty stack that will be changed at the start."""
        params = reservation.params
        if params["on_start"] != CREATE or params["stack_id"] is not None:
            return {}
        name = params["stack_name"] or f"climate-{reservation.id}"
        stack = self.cloud.make_empty(asker, name, reservation.id)
        return {"stack_id": stack.id, "stack_name": stack.name}

    def abandon(self, lease: Lease, reservation: Reservation) -> None:
        """Delete the empty stack."""
        stack = self.cloud.find_marked(lease.project_id, reservation.id)
        if stack is not None and stack.plan is None:
            self._delete(stack)

    def start(
        self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Have the stack be what its template says, on the room of its children."""
        if reservation.params["on_start"] != CREATE:
            return {}
        stack = self._get(lease, reservation)
        if stack is None:
            raise StackFailed(f"stack {self._id(reservation)} is gone: somebody deleted it")
        source, children = self._source(reservation), _children(lease, reservation)
        source = stack_children.reserved(source, reservation.params, children)
        if reservation.status is not ReservationStatus.ACTIVE:
            self._wake(stack)
        self._deploy(lease, stack, source, reservation.id)
        return {"stack_id": stack.id, "stack_name": stack.name, "deployed": True}

    def end(self, lease: Lease, reservation: Reservation, _resources: Sequence[Granted]) -> None:
        """Delete it, or suspend it on the flavors that it would have without us, or leave it."""
        stack = self._get(lease, reservation)
        if stack is None:  # also if its user was to make it
            return
        on_end, mine = reservation.params["on_end"], reservation.params["stack_id"] is None
        if on_end == KEEP and not (mine and stack.plan is None):
            if stack.reservation_id == reservation.id:
                self._deploy(lease, stack, self._source(reservation), None)
        elif on_end == SUSPEND and not (mine and stack.plan is None):
            self._suspend(lease, stack, reservation)
        else:
            self._delete(stack)

    def _id(self, reservation: Reservation) -> str | None:
        found: str | None = reservation.params["stack_id"] or reservation.details.get("stack_id")
        return found

    def _get(self, lease: Lease, reservation: Reservation) -> Stack | None:
        """Return the stack of a reservation, None if there is none."""
        if id_ := self._id(reservation):
            return self.cloud.find(lease.project_id, id_)
        if reservation.params["on_start"] != CREATE:
            return None
        return self.cloud.find_marked(lease.project_id, reservation.id)

    def _source(self, reservation: Reservation) -> Source:
        source = source_of(reservation.params)
        assert source is not None  # noqa: S101 - it was looked up
        return source

    def _wake(self, stack: Stack) -> None:
        """Have a suspended stack resumed; raises NotYet meanwhile, StackFailed."""
        _wait(stack)
        if stack.action in _ASLEEP and stack.status != "RESUME_COMPLETE":
            self._again(stack, lambda: self.cloud.resume(stack), "resumed")

    def _deploy(
        self, lease: Lease, stack: Stack, source: Source, reservation_id: str | None
    ) -> None:
        """Have the stack be what the source says; raises NotYet meanwhile, StackFailed.

        Without a reservation it is nobody's but its owner's then.
        """
        _wait(stack)
        # A tag has 80 characters at most.
        whose = f"{reservation_id[-8:]}-" if reservation_id else ""
        plan = f"{whose}{source.fingerprint}"
        tags = stack.tags_for(reservation_id, plan)
        if stack.plan != plan:
            self._wake(stack)
            self.cloud.update(lease, stack, source, tags)
            raise NotYet(f"stack {stack.id} is being updated")
        if stack.status == "UPDATE_FAILED":
            self._again(stack, lambda: self.cloud.update(lease, stack, source, tags), "updated")

    def _suspend(self, lease: Lease, stack: Stack, reservation: Reservation) -> None:
        """Have it suspended; raises NotYet meanwhile, StackFailed.

        As it keeps what it has, it must be off the reserved room before.
        """
        _wait(stack)
        source = self._source(reservation)
        # Whoever changes a stack without a word of tags removes them.
        deployed = stack.plan is not None or reservation.details.get("deployed", False)
        if deployed and (stack.plan != source.fingerprint or stack.action == "UPDATE"):
            self._deploy(lease, stack, source, None)
        if stack.status != _SUSPENDED:
            self._again(stack, lambda: self.cloud.suspend(stack), "suspended")

    def _delete(self, stack: Stack) -> None:
        """Have it deleted; raises NotYet meanwhile, StackFailed."""
        if stack.status == "DELETE_IN_PROGRESS":
            raise NotYet(f"stack {stack.id} is being deleted")
        self._again(stack, lambda: self.cloud.delete(stack), "deleted")

    def _again(self, stack: Stack, act: Callable[[], None], what: str) -> None:
        """Have something done, once more if it failed; then the failure of the last time is told.

        Raises NotYet, StackFailed.
        """
        act()
        if stack.has_failed:
            raise StackFailed(f"stack {stack.id} is {stack.status}: {stack.reason}")
        raise NotYet(f"stack {stack.id} is being {what}")

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare the stacks that are marked as ours with what leases have."""
        return differences(self.cloud, self._clock, expected)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Refuse: there is nothing of this type to register."""
        raise Conflict(
            f"{name or external_number}: register what stacks consist of, not {self.resource_type}"
        )

    def inventory(self) -> Iterable[Found]:
        """Return nothing: there is nothing of this type to register."""
        return ()


def _wait(stack: Stack) -> None:
    if stack.is_busy:
        raise NotYet(f"stack {stack.id} is {stack.status}")


def _children(lease: Lease, reservation: Reservation) -> list[Reservation]:
    return [one for one in lease.reservations if one.stack_id == reservation.id and one.stays]
