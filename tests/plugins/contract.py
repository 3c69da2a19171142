"""The contract of every resource plug-in, as tests.

The test module of a plug-in defines a subclass of PluginContract whose name begins with ``Test``.
"""

import abc
import contextlib
import copy
import datetime as dt
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marshmallow import ValidationError

from climate.core.errors import ClimateError, InvalidInput, NotFound
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.matching.extra_specs import RESOURCES, TRAIT
from climate.core.window import Window
from climate.plugins.base import DiscoveredResource, Requester, ResourcePlugin

ASKER = Requester("lab", "alice")
NOON = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
# More effects than any single call has.
MANY = 50

_texts = st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _texts
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
)
_calm = settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Interrupted(Exception):
    """The cloud failed in the middle of a call."""


class ParamsContract(abc.ABC):
    """Rules for the parameters of a request; a subclass names the plug-in and an example."""

    #: The plug-in's part of a request that the API would accept.
    example: ClassVar[Mapping[str, Any]]
    #: The type of the resources that it allocates, unless that is the plug-in's type.
    taken: ClassVar[str | None] = None

    @pytest.fixture
    @abc.abstractmethod
    def plugin(self) -> ResourcePlugin:
        """Return the plug-in of a cloud in which nothing is reserved and nothing fails."""

    def loaded(self, plugin: ResourcePlugin, **params: Any) -> Mapping[str, Any]:
        """Return the parameters of the example, as they are stored."""
        return plugin.look_up(plugin.schema().load({**self.example, **params}), ASKER)

    def reservation(self, plugin: ResourcePlugin, **params: Any) -> Reservation:
        return Reservation(
            id=str(uuid.uuid4()),
            lease_id=str(uuid.uuid4()),
            resource_type=plugin.resource_type,
            status=ReservationStatus.PENDING,
            params=self.loaded(plugin, **params),
            created_at=NOON,
            updated_at=None,
        )

    def test_stored_params_load_again_unchanged(self, plugin: ResourcePlugin) -> None:
        loaded = self.loaded(plugin)
        assert json.loads(json.dumps(loaded)) == loaded
        assert plugin.schema().load(loaded) == loaded

    def test_ignores_the_keys_of_other_types(self, plugin: ResourcePlugin) -> None:
        others = {"resource_type": plugin.resource_type, "id": "1", "a key of another type": [1]}
        loaded = plugin.schema().load({**others, **self.example})
        assert plugin.look_up(loaded, ASKER) == self.loaded(plugin)

    @_calm
    @given(data=st.data())
    def test_rejects_or_loads_any_input_without_failing(
        self, plugin: ResourcePlugin, data: Any
    ) -> None:
        keys = st.sampled_from(sorted(plugin.schema().fields))
        params = data.draw(st.dictionaries(keys, _json))
        complete = data.draw(st.booleans())
        try:
            loaded = plugin.schema().load({**(self.example if complete else {}), **params})
            plugin.requirement(loaded)
        except ValidationError:
            return
        except ClimateError as error:
            if error.status >= 500:
                raise
            return
        json.dumps(loaded)

    def test_a_requirement_depends_only_on_the_params(self, plugin: ResourcePlugin) -> None:
        loaded = self.loaded(plugin)
        before = copy.deepcopy(loaded)
        requirement = plugin.requirement(loaded)
        assert plugin.requirement(loaded) == requirement
        assert loaded == before
        assert requirement.resource_type == (self.taken or plugin.resource_type)
        assert 0 < requirement.minimum <= requirement.maximum


class PluginContract(ParamsContract):
    """The whole contract; a subclass also says how to inspect and how to break the cloud."""

    @abc.abstractmethod
    def state(self, plugin: ResourcePlugin) -> Any:
        """Return all that a plug-in can change in its cloud, as a value to compare."""

    @abc.abstractmethod
    def failing_after(
        self, plugin: ResourcePlugin, effects: int
    ) -> contextlib.AbstractContextManager[None]:
        """Let ``effects`` changes of the cloud succeed, and the next raise Interrupted."""

    @abc.abstractmethod
    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Do what users do with the resources that were handed over to them."""

    @abc.abstractmethod
    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Delete everything of the reservation that a user or an operator could delete."""

    def name(self, found: DiscoveredResource) -> str:
        """Return the name by which an operator registers a resource."""
        return found.external_id

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        """Return so many resources as reservations of the example have them."""
        return resources(plugin, count)

    # Start and end.

    def test_start_and_end_leave_no_trace(self, plugin: ResourcePlugin) -> None:
        before, reservation = self.state(plugin), self.reservation(plugin)
        plugin.requirement(reservation.params)
        assert self.state(plugin) == before
        plugin.start(lease(reservation), reservation, self.granted(plugin, 2))
        assert self.state(plugin) != before
        self.use(plugin, reservation)
        plugin.end(lease(reservation), reservation, self.granted(plugin, 2))
        assert self.state(plugin) == before

    def test_start_is_idempotent(self, plugin: ResourcePlugin) -> None:
        reservation, granted = self.reservation(plugin), self.granted(plugin, 2)
        details = plugin.start(lease(reservation), reservation, granted)
        started = self.state(plugin)
        assert plugin.start(lease(reservation), reservation, granted) == details
        assert self.state(plugin) == started
        assert json.loads(json.dumps(details)) == details

    def test_end_is_idempotent_and_needs_no_start(self, plugin: ResourcePlugin) -> None:
        before, granted = self.state(plugin), self.granted(plugin, 2)
        for was_started, was_used in ((False, False), (True, False), (True, True)):
            reservation = self.reservation(plugin)
            if was_started:
                plugin.start(lease(reservation), reservation, granted)
            if was_used:
                self.use(plugin, reservation)
            plugin.end(lease(reservation), reservation, granted)
            plugin.end(lease(reservation), reservation, granted)
            plugin.end(lease(reservation), reservation, ())
            assert self.state(plugin) == before, (was_started, was_used)

    def test_a_stopped_reservation_leaves_no_trace_and_can_start_again(
        self, plugin: ResourcePlugin
    ) -> None:
        before, granted = self.state(plugin), self.granted(plugin, 2)
        reservation = self.reservation(plugin)
        for was_started in (False, True, True):
            if was_started:
                plugin.start(lease(reservation), reservation, granted)
                at_once = self.described_at_once(plugin, reservation, granted)
                assert self.described(plugin, reservation) == at_once
                self.use(plugin, reservation)
            details = plugin.stop(lease(reservation), reservation, granted)
            assert json.loads(json.dumps(details)) == details
            assert plugin.stop(lease(reservation), reservation, granted) == details
            assert self.state(plugin) == before, was_started

    def test_a_second_start_completes_an_interrupted_one(self, plugin: ResourcePlugin) -> None:
        granted, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            reservation = self.reservation(plugin)
            if not self.interrupted(plugin, effects, "start", reservation, granted):
                break
            plugin.start(lease(reservation), reservation, granted)
            uninterrupted = self.described_at_once(plugin, reservation, granted)
            assert self.described(plugin, reservation) == uninterrupted
            plugin.end(lease(reservation), reservation, granted)
            assert self.state(plugin) == before
        assert 0 < effects < MANY

    def test_an_end_cleans_up_an_interrupted_start(self, plugin: ResourcePlugin) -> None:
        granted, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            reservation = self.reservation(plugin)
            interrupted = self.interrupted(plugin, effects, "start", reservation, granted)
            plugin.end(lease(reservation), reservation, granted)
            assert self.state(plugin) == before
            if not interrupted:
                break
        assert 0 < effects < MANY

    def test_a_second_end_completes_an_interrupted_one(self, plugin: ResourcePlugin) -> None:
        granted, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            reservation = self.reservation(plugin)
            plugin.start(lease(reservation), reservation, granted)
            self.use(plugin, reservation)
            interrupted = self.interrupted(plugin, effects, "end", reservation, granted)
            plugin.end(lease(reservation), reservation, granted)
            assert self.state(plugin) == before
            if not interrupted:
                break
        assert 0 < effects < MANY

    def test_a_start_with_more_resources_adds_them(self, plugin: ResourcePlugin) -> None:
        reservation, granted = self.reservation(plugin), self.granted(plugin, 3)
        plugin.start(lease(reservation), reservation, granted[:1])
        self.use(plugin, reservation)
        used = self.state(plugin)
        plugin.start(lease(reservation), reservation, granted)
        assert self.state(plugin) != used
        plugin.end(lease(reservation), reservation, granted)
        plugin.start(lease(reservation), reservation, granted[:1])
        plugin.start(lease(reservation), reservation, granted)
        at_once = self.described_at_once(plugin, reservation, granted)
        assert self.described(plugin, reservation) == at_once

    def test_an_end_tolerates_what_users_deleted(self, plugin: ResourcePlugin) -> None:
        before, granted = self.state(plugin), self.granted(plugin, 2)
        reservation = self.reservation(plugin)
        plugin.start(lease(reservation), reservation, granted)
        self.use(plugin, reservation)
        self.sabotage(plugin, reservation)
        plugin.end(lease(reservation), reservation, granted)
        unused = self.described(plugin, self.reservation(plugin))
        assert self.described(plugin, reservation) == unused
        plugin.start(lease(reservation), reservation, granted)
        plugin.end(lease(reservation), reservation, granted)
        assert self.state(plugin) == before

    def test_a_warning_before_the_end_takes_nothing_away(self, plugin: ResourcePlugin) -> None:
        reservation, granted = self.reservation(plugin), self.granted(plugin, 2)
        plugin.before_end(lease(reservation), reservation, granted)  # before any start
        plugin.start(lease(reservation), reservation, granted)
        self.use(plugin, reservation)
        held = self.state(plugin)
        plugin.before_end(lease(reservation), reservation, granted)
        plugin.before_end(lease(reservation), reservation, granted)
        assert self.state(plugin) == held

    def test_reservations_do_not_disturb_each_other(self, plugin: ResourcePlugin) -> None:
        first, second = (self.reservation(plugin) for _ in range(2))
        granted = self.granted(plugin, 2)
        plugin.start(lease(first), first, granted[:1])
        alone = self.state(plugin)
        plugin.start(lease(second), second, granted[1:])
        self.use(plugin, second)
        plugin.end(lease(second), second, granted[1:])
        assert self.state(plugin) == alone

    # Inventory.

    def test_finds_every_resource_of_the_inventory_by_name(self, plugin: ResourcePlugin) -> None:
        inventory = list(plugin.inventory())
        assert inventory
        found = [plugin.find(name=self.name(item)) for item in inventory]
        # A real host reports to the cloud between the two queries.
        assert [replace(item, heard_at=None) for item in found] == [
            replace(item, heard_at=None) for item in inventory
        ]
        assert len({item.external_id for item in inventory}) == len(inventory)
        for item in inventory:
            own = {name for name in item.properties if not name.startswith((TRAIT, RESOURCES))}
            assert own <= plugin.native_properties
            assert all(isinstance(value, str) for value in item.properties.values())

    def test_rejects_an_unknown_name_or_number(self, plugin: ResourcePlugin) -> None:
        with pytest.raises((NotFound, InvalidInput)):  # such a name may be malformed
            plugin.find(name="no such thing")
        with pytest.raises(NotFound):
            plugin.find(external_number="no such thing")

    # Helpers.

    def interrupted(
        self,
        plugin: ResourcePlugin,
        effects: int,
        call: str,
        reservation: Reservation,
        granted: Sequence[Granted],
    ) -> bool:
        """Start or end with at most so many effects; return whether that was too few."""
        with self.failing_after(plugin, effects):
            try:
                getattr(plugin, call)(lease(reservation), reservation, granted)
            except Interrupted:
                return True
        return False

    def described(self, plugin: ResourcePlugin, reservation: Reservation) -> Any:
        """Return the state, with a constant name for the reservation."""
        return json.loads(json.dumps(self.state(plugin)).replace(reservation.id, "mine"))

    def described_at_once(
        self, plugin: ResourcePlugin, reservation: Reservation, granted: Sequence[Granted]
    ) -> Any:
        """Return the state after an uninterrupted start; restore the present one."""
        plugin.end(lease(reservation), reservation, granted)
        other = replace(reservation, id=str(uuid.uuid4()))
        plugin.start(lease(other), other, granted)
        described = self.described(plugin, other)
        plugin.end(lease(other), other, granted)
        plugin.start(lease(reservation), reservation, granted)
        return described


def lease(reservation: Reservation) -> Lease:
    return Lease(
        id=reservation.lease_id,
        name="lease",
        user_id="jane",
        project_id="lab",
        window=Window(NOON, NOON + dt.timedelta(hours=1)),
        status=LeaseStatus.STARTING,
        degraded=False,
        notices=(),
        reservations=(reservation,),
        events=(),
        created_at=NOON,
        updated_at=None,
    )


def resources(plugin: ResourcePlugin, count: int) -> tuple[Granted, ...]:
    """Return the first resources of the inventory as a reservation has them, each as a whole."""
    return tuple(
        Granted(
            id=number,
            type=plugin.resource_type,
            external_id=item.external_id,
            reservable=True,
            properties=item.properties,
            native=plugin.native_properties,
            created_at=NOON,
            updated_at=None,
            amounts={},
        )
        for number, item in zip(range(1, count + 1), plugin.inventory(), strict=False)
    )
