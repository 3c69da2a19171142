"""Reservations of volumes with ``match: open`` on the simulated cloud."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate.clock import SystemClock
from climate.core.errors import InvalidInput
from climate.core.lease.model import Reservation
from climate.plugins.base import ResourcePlugin
from climate.plugins.volumes.plugin import VolumePlugin
from tests.plugins.contract import ASKER, Interrupted, lease
from tests.plugins.fragile import make_plugin
from tests.plugins.volumes import test_plugin
from tests.plugins.volumes.test_plugin import audit, cloud, end, granted, reservation, started

STANDARD = "sim-standard"


@pytest.fixture
def plugin(conf: ConfigOpts) -> VolumePlugin:
    plugin: VolumePlugin = make_plugin(VolumePlugin, conf, SystemClock())
    return plugin


def default(plugin: ResourcePlugin) -> str | None:
    return cloud(plugin).default_types().get("lab")


class TestOpenReservation(test_plugin.TestVolumePlugin):
    """The contract: interruptions before each change of the cloud, repeated calls, repairs."""

    example: ClassVar = {**test_plugin.TestVolumePlugin.example, "match": "open"}

    # The schema is the same, so its test need not run twice.
    test_rejects_or_loads_any_input_without_failing = None  # type: ignore[assignment]
    # Reservations of one project share its default type, as the tests below say.
    test_reservations_do_not_disturb_each_other = None  # type: ignore[assignment]

    @pytest.fixture
    def plugin(self, plugin: VolumePlugin) -> VolumePlugin:
        plugin.__class__ = test_plugin.PatientPlugin
        cloud(plugin).set_default_type("lab", STANDARD)
        return plugin

    def state(self, plugin: ResourcePlugin) -> Any:
        former = [each.former_default for each in cloud(plugin).reserved_types()]
        return [super().state(plugin), former, default(plugin)]

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Create a volume of the default type."""
        [used] = [each for each in cloud(plugin).reserved_types() if each.id == default(plugin)]
        cloud(plugin).make(used, "lab", 3)

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        cloud(plugin).set_default_type("lab", STANDARD)
        super().sabotage(plugin, reservation)


def open_reservation(plugin: VolumePlugin) -> Reservation:
    return started(plugin, match="open")


@pytest.mark.parametrize("former", [STANDARD, None])
def test_the_end_of_each_reservation_hands_the_default_to_the_next(
    plugin: VolumePlugin, former: str | None
) -> None:
    if former:
        cloud(plugin).set_default_type("lab", former)
    first, second, third = (open_reservation(plugin) for _ in range(3))
    assert default(plugin) == first.id
    end(plugin, second)
    assert default(plugin) == first.id
    end(plugin, first)
    assert default(plugin) == third.id
    end(plugin, third)
    assert default(plugin) == former


def test_no_reservation_of_another_project_gets_the_default(plugin: VolumePlugin) -> None:
    held, other = open_reservation(plugin), open_reservation(plugin)
    [theirs] = [each for each in cloud(plugin).reserved_types() if each.id == other.id]
    cloud(plugin).open_reserved_type(theirs, "another project")
    end(plugin, held)
    assert default(plugin) is None


def test_a_reservation_that_is_ending_does_not_get_the_default(plugin: VolumePlugin) -> None:
    first, second = open_reservation(plugin), open_reservation(plugin)
    with TestOpenReservation().failing_after(plugin, 1), pytest.raises(Interrupted):
        plugin.end(lease(second), second, granted(plugin))
    end(plugin, first)
    assert default(plugin) is None


def test_a_default_that_an_administrator_sets_meanwhile_returns_at_the_end(
    plugin: VolumePlugin,
) -> None:
    held, waiting = open_reservation(plugin), open_reservation(plugin)
    cloud(plugin).set_default_type("lab", STANDARD)
    drifts = audit(plugin, held, waiting)
    assert [drift.lease_id for drift in drifts] == [held.lease_id, waiting.lease_id]
    assert f"default volume type of project lab is {STANDARD}" in drifts[0].description
    plugin.start(lease(held), held, granted(plugin))
    assert audit(plugin, held, waiting) == []
    end(plugin, held)
    end(plugin, waiting)
    assert default(plugin) == STANDARD


def test_a_former_default_type_that_is_gone_is_not_restored(plugin: VolumePlugin) -> None:
    held, targeted = open_reservation(plugin), started(plugin)
    cloud(plugin).store_former_default(_type(plugin, held), "deleted")
    end(plugin, held)
    assert default(plugin) is None
    assert _type(plugin, targeted).former_default is None


def _type(plugin: VolumePlugin, held: Reservation) -> Any:
    [reserved] = [each for each in cloud(plugin).reserved_types() if each.id == held.id]
    return reserved


def test_the_repair_of_a_stale_type_restores_the_default(plugin: VolumePlugin) -> None:
    cloud(plugin).set_default_type("lab", STANDARD)
    open_reservation(plugin)
    [drift] = audit(plugin)
    assert drift.repair is not None
    drift.repair()
    assert (default(plugin), cloud(plugin).reserved_types()) == (STANDARD, [])


def test_the_project_creates_the_volumes_of_an_open_reservation(plugin: VolumePlugin) -> None:
    assert reservation(plugin, match="open").params["on_start"] == "nothing"
    assert reservation(plugin, match="open", on_start=None).params["on_start"] == "nothing"
    for on_start in ("create", "manual"):
        with pytest.raises(ValidationError, match="Must be nothing with match: open"):
            reservation(plugin, match="open", on_start=on_start)
    with pytest.raises(ValidationError, match="Must be one of: targeted, open"):
        reservation(plugin, match="opne")


def test_rejects_an_open_reservation_in_a_cloud_without_default_types(
    plugin: VolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(plugin.cloud), "has_default_types", False)
    params = plugin.schema().load({"volume_type": "gold", "size": 1, "match": "open"})
    with pytest.raises(InvalidInput, match="requires default volume types"):
        plugin.look_up(params, ASKER)
    plugin.look_up({**params, "match": "targeted"}, ASKER)


class TestLocks:
    """Changes of one project's default type never overlap."""

    def test_each_change_of_a_default_holds_the_lock_of_the_project(
        self, conf: ConfigOpts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held: list[str] = []

        @contextlib.contextmanager
        def turn(name: str) -> Iterator[None]:
            held.append(name)
            yield
            held.remove(name)

        plugin = VolumePlugin(conf, turn, SystemClock())
        locks: list[list[str]] = []
        change = cloud(plugin).set_default_type

        def set_default_type(project_id: str, type_id: str) -> None:
            locks.append([*held])
            change(project_id, type_id)

        monkeypatch.setattr(plugin.cloud, "set_default_type", set_default_type)
        end(plugin, open_reservation(plugin))
        assert locks == [["default volume type lab"]] * 2
