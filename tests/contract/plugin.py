"""What every resource plugin must do, whatever it reserves: the tests that prove it.

A plugin's own test module makes a subclass of PluginContract whose name begins with ``Test``.
"""

import abc
import contextlib
import copy
import datetime as dt
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marshmallow import ValidationError

from climate.core.errors import ClimateError, NotFound
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.matching.extra_specs import RESOURCES, TRAIT
from climate.core.window import Window
from climate.plugins.base import DiscoveredResource, Requester, ResourcePlugin

ASKER = Requester("lab", "alice")
NOON = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
# More effects than any one call has.
MANY = 50

_texts = st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _texts
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
)
_calm = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Interrupted(Exception):
    """The cloud failed in the middle of a call."""


class PluginContract(abc.ABC):
    """The contract; a subclass says which plugin, what can be asked of it, and how to look."""

    #: The plugin's part of a request that the API would accept.
    example: ClassVar[Mapping[str, Any]]
    #: The type of the resources that it takes, unless that is the plugin's.
    taken: ClassVar[str | None] = None

    @pytest.fixture
    @abc.abstractmethod
    def plugin(self) -> ResourcePlugin:
        """Return the plugin before a cloud in which nothing is reserved and nothing fails."""

    @abc.abstractmethod
    def state(self, plugin: ResourcePlugin) -> Any:
        """Return all that a plugin can change in its cloud, as a value to compare."""

    @abc.abstractmethod
    def failing_after(
        self, plugin: ResourcePlugin, effects: int
    ) -> contextlib.AbstractContextManager[None]:
        """Let ``effects`` changes of the cloud succeed, and the next raise Interrupted."""

    @abc.abstractmethod
    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Do what users do with what was handed over to them."""

    @abc.abstractmethod
    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Delete in the cloud all of the reservation that somebody could delete."""

    def name(self, found: DiscoveredResource) -> str:
        """Return the name by which an operator would register a resource."""
        return found.external_id

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        """Return so many resources as reservations of the example have them."""
        return resources(plugin, count)

    def loaded(self, plugin: ResourcePlugin, **params: Any) -> Mapping[str, Any]:
        """Return the parameters of the example, as they are stored."""
        return plugin.look_up(plugin.schema().load({**self.example, **params}), ASKER)

    def reservation(self, plugin: ResourcePlugin, **params: Any) -> Reservation:
        """Return a new reservation of the example."""
        return Reservation(
            id=str(uuid.uuid4()),
            lease_id=str(uuid.uuid4()),
            resource_type=plugin.resource_type,
            status=ReservationStatus.PENDING,
            params=self.loaded(plugin, **params),
            created_at=NOON,
            updated_at=None,
        )

    # What can be asked.

    def test_the_example_loads_and_can_be_stored(self, plugin: ResourcePlugin) -> None:
        loaded = self.loaded(plugin)
        assert json.loads(json.dumps(loaded)) == loaded

    def test_what_was_loaded_loads_again_to_the_same(self, plugin: ResourcePlugin) -> None:
        loaded = self.loaded(plugin)
        assert plugin.schema().load(loaded) == loaded

    def test_keys_of_others_are_passed_over(self, plugin: ResourcePlugin) -> None:
        others = {"resource_type": plugin.resource_type, "id": "1", "a key of another type": [1]}
        loaded = plugin.schema().load({**others, **self.example})
        assert plugin.look_up(loaded, ASKER) == self.loaded(plugin)

    @_calm
    @given(data=st.data())
    def test_junk_is_refused_or_understood(self, plugin: ResourcePlugin, data: Any) -> None:
        keys = st.sampled_from(sorted(plugin.schema().fields))
        junk = data.draw(st.dictionaries(keys, _json, min_size=1))
        kept = data.draw(st.booleans())
        try:
            loaded = plugin.schema().load({**(self.example if kept else {}), **junk})
            plugin.requirement(loaded)
        except ValidationError:
            return
        except ClimateError as refusal:
            if refusal.status >= 500:
                raise
            return
        json.dumps(loaded)

    def test_an_empty_request_is_refused_or_has_defaults(self, plugin: ResourcePlugin) -> None:
        with contextlib.suppress(ValidationError):
            plugin.requirement(plugin.schema().load({}))

    def test_a_requirement_is_the_same_each_time(self, plugin: ResourcePlugin) -> None:
        loaded = self.loaded(plugin)
        before = copy.deepcopy(loaded)
        first = plugin.requirement(loaded)
        assert plugin.requirement(loaded) == first
        assert loaded == before
        assert first.resource_type == (self.taken or plugin.resource_type)
        assert 0 < first.minimum <= first.maximum

    def test_a_requirement_touches_nothing(self, plugin: ResourcePlugin) -> None:
        before = self.state(plugin)
        with self.failing_after(plugin, 0):
            plugin.requirement(self.loaded(plugin))
        assert self.state(plugin) == before

    # Handing over and taking back.

    def test_what_was_started_and_ended_leaves_no_trace(self, plugin: ResourcePlugin) -> None:
        before, mine = self.state(plugin), self.reservation(plugin)
        plugin.start(lease(mine), mine, self.granted(plugin, 2))
        assert self.state(plugin) != before
        self.use(plugin, mine)
        plugin.end(lease(mine), mine, self.granted(plugin, 2))
        assert self.state(plugin) == before

    def test_to_start_twice_is_to_start_once(self, plugin: ResourcePlugin) -> None:
        mine, given_ = self.reservation(plugin), self.granted(plugin, 2)
        details = plugin.start(lease(mine), mine, given_)
        once = self.state(plugin)
        assert plugin.start(lease(mine), mine, given_) == details
        assert self.state(plugin) == once
        assert json.loads(json.dumps(details)) == details

    @pytest.mark.parametrize("used", [False, True])
    def test_to_end_twice_is_to_end_once(self, plugin: ResourcePlugin, used: bool) -> None:
        before, mine, given_ = self.state(plugin), self.reservation(plugin), self.granted(plugin, 2)
        plugin.start(lease(mine), mine, given_)
        if used:
            self.use(plugin, mine)
        plugin.end(lease(mine), mine, given_)
        plugin.end(lease(mine), mine, given_)
        assert self.state(plugin) == before

    def test_what_never_started_can_be_ended(self, plugin: ResourcePlugin) -> None:
        before, mine = self.state(plugin), self.reservation(plugin)
        plugin.end(lease(mine), mine, self.granted(plugin, 2))
        plugin.end(lease(mine), mine, ())
        assert self.state(plugin) == before

    def test_an_interrupted_start_is_completed_by_the_next(self, plugin: ResourcePlugin) -> None:
        given_, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            mine = self.reservation(plugin)
            if not self.interrupted(plugin, effects, "start", mine, given_):
                break
            plugin.start(lease(mine), mine, given_)
            assert self.described(plugin, mine) == self.described_at_once(plugin, mine, given_)
            plugin.end(lease(mine), mine, given_)
            assert self.state(plugin) == before
        assert 0 < effects < MANY

    def test_an_interrupted_start_can_be_ended(self, plugin: ResourcePlugin) -> None:
        given_, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            mine = self.reservation(plugin)
            interrupted = self.interrupted(plugin, effects, "start", mine, given_)
            plugin.end(lease(mine), mine, given_)
            assert self.state(plugin) == before
            if not interrupted:
                break
        assert 0 < effects < MANY

    def test_an_interrupted_end_is_completed_by_the_next(self, plugin: ResourcePlugin) -> None:
        given_, before = self.granted(plugin, 3), self.state(plugin)
        for effects in range(MANY):
            mine = self.reservation(plugin)
            plugin.start(lease(mine), mine, given_)
            self.use(plugin, mine)
            interrupted = self.interrupted(plugin, effects, "end", mine, given_)
            plugin.end(lease(mine), mine, given_)
            assert self.state(plugin) == before
            if not interrupted:
                break
        assert 0 < effects < MANY

    def test_to_start_with_more_is_to_grow(self, plugin: ResourcePlugin) -> None:
        mine, given_ = self.reservation(plugin), self.granted(plugin, 3)
        plugin.start(lease(mine), mine, given_[:1])
        self.use(plugin, mine)
        used = self.state(plugin)
        plugin.start(lease(mine), mine, given_)
        assert self.state(plugin) != used
        plugin.end(lease(mine), mine, given_)
        plugin.start(lease(mine), mine, given_[:1])
        plugin.start(lease(mine), mine, given_)
        assert self.described(plugin, mine) == self.described_at_once(plugin, mine, given_)

    def test_what_users_deleted_is_no_obstacle_to_the_end(self, plugin: ResourcePlugin) -> None:
        before, mine, given_ = self.state(plugin), self.reservation(plugin), self.granted(plugin, 2)
        plugin.start(lease(mine), mine, given_)
        self.use(plugin, mine)
        self.sabotage(plugin, mine)
        plugin.end(lease(mine), mine, given_)
        assert self.described(plugin, mine) == self.described(plugin, self.reservation(plugin))
        plugin.start(lease(mine), mine, given_)
        plugin.end(lease(mine), mine, given_)
        assert self.state(plugin) == before

    def test_a_warning_before_the_end_takes_nothing_away(self, plugin: ResourcePlugin) -> None:
        mine, given_ = self.reservation(plugin), self.granted(plugin, 2)
        plugin.before_end(lease(mine), mine, given_)  # of something that is not there
        plugin.start(lease(mine), mine, given_)
        self.use(plugin, mine)
        held = self.state(plugin)
        plugin.before_end(lease(mine), mine, given_)
        plugin.before_end(lease(mine), mine, given_)
        assert self.state(plugin) == held

    def test_one_reservation_does_not_disturb_another(self, plugin: ResourcePlugin) -> None:
        mine, theirs, given_ = *(self.reservation(plugin) for _ in "ab"), self.granted(plugin, 2)
        plugin.start(lease(mine), mine, given_[:1])
        alone = self.state(plugin)
        plugin.start(lease(theirs), theirs, given_[1:])
        self.use(plugin, theirs)
        plugin.end(lease(theirs), theirs, given_[1:])
        assert self.state(plugin) == alone

    # What there is.

    def test_all_that_there_is_can_be_found(self, plugin: ResourcePlugin) -> None:
        there = list(plugin.inventory())
        assert there
        assert [plugin.find(name=self.name(found)) for found in there] == there
        assert len({found.external_id for found in there}) == len(there)

    def test_what_is_not_there_is_not_found(self, plugin: ResourcePlugin) -> None:
        with pytest.raises(NotFound):
            plugin.find(name="no such thing")
        with pytest.raises(NotFound):
            plugin.find(external_number="no such thing")

    def test_all_have_the_properties_that_the_plugin_promises(self, plugin: ResourcePlugin) -> None:
        for found in plugin.inventory():
            told = {name for name in found.properties if not name.startswith((TRAIT, RESOURCES))}
            assert told <= plugin.native_properties
            assert all(isinstance(value, str) for value in found.properties.values())

    # How that is told.

    def interrupted(
        self,
        plugin: ResourcePlugin,
        effects: int,
        call: str,
        mine: Reservation,
        given_: Sequence[Granted],
    ) -> bool:
        """Start or end with that many effects at most; tell whether that was too few."""
        with self.failing_after(plugin, effects):
            try:
                getattr(plugin, call)(lease(mine), mine, given_)
            except Interrupted:
                return True
        return False

    def described(self, plugin: ResourcePlugin, mine: Reservation) -> Any:
        """Return the state, with a name for the reservation that does not change."""
        return json.loads(json.dumps(self.state(plugin)).replace(mine.id, "mine"))

    def described_at_once(
        self, plugin: ResourcePlugin, mine: Reservation, given_: Sequence[Granted]
    ) -> Any:
        """Return the state as it is if nothing interrupts; it is so afterwards, too."""
        plugin.end(lease(mine), mine, given_)
        again = replace(mine, id=str(uuid.uuid4()))
        plugin.start(lease(again), again, given_)
        described = self.described(plugin, again)
        plugin.end(lease(again), again, given_)
        plugin.start(lease(mine), mine, given_)
        return described


def lease(reservation: Reservation) -> Lease:
    """Return the lease around a reservation."""
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
    """Return the first things of the inventory as a reservation would have them, each whole."""
    found: Iterator[DiscoveredResource] = iter(plugin.inventory())
    return tuple(
        Granted(
            id=number,
            type=plugin.resource_type,
            external_id=one.external_id,
            reservable=True,
            properties=one.properties,
            native=plugin.native_properties,
            created_at=NOON,
            updated_at=None,
            amounts={},
        )
        for number, one in zip(range(1, count + 1), found, strict=False)
    )
