"""The unmodified ``openstack reservation`` commands against a running service."""

import datetime as dt
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import OpenStack, at, moment
from tests.support.process import BIN, Service, environment, eventually

NIGHTLY = pytest.mark.nightly(reason="starts a new interpreter for each command")

pytest.importorskip("blazarclient", reason="python-blazarclient is not installed")
pytest.importorskip("openstackclient", reason="python-openstackclient is not installed")


@NIGHTLY
def test_the_openstack_command_lists_hosts(service: Service, tmp_path: Path) -> None:
    command: list[str | Path] = [BIN / "openstack", "--os-auth-type", "none"]
    command += ["--os-endpoint", f"{service.url}/v1"]
    answer = subprocess.run(
        [*command, "reservation", "host", "list", "-f", "value", "-c", "hypervisor_hostname"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sim-1" in answer.stdout.splitlines()


def test_the_command_creates_shows_changes_and_deletes_a_host(openstack: OpenStack) -> None:
    made = openstack.read("host", "create", "sim-11", "--extra", "gpu=True", "--extra", "rack=r1")
    assert made["gpu"] == "True"
    listed = openstack.read("host", "list")
    assert {host["hypervisor_hostname"]: host["id"] for host in listed}["sim-11"] == made["id"]
    assert "Updated host: sim-11" in openstack.do("host", "set", "--extra", "rack=r2", "sim-11")
    by_name = openstack.read("host", "show", "sim-11")
    assert by_name["rack"] == "r2"
    assert openstack.read("host", "show", made["id"]) == by_name
    assert "Deleted host: sim-11" in openstack.do("host", "delete", "sim-11")
    assert "sim-11" in openstack.refused("host", "show", "sim-11")


def test_the_command_lists_shows_and_hides_properties(openstack: OpenStack) -> None:
    openstack.do("host", "create", "sim-12", "--extra", "floor=3")
    assert {"property": "floor"} in openstack.read("host", "property", "list")
    detailed = openstack.read("host", "property", "list", "--detail")
    assert {"property": "floor", "private": False, "property_values": ["3"]} in detailed
    assert openstack.read("host", "property", "show", "floor")["property_values"] == ["3"]
    openstack.do("host", "property", "set", "floor", "--private")
    assert {"property": "floor"} not in openstack.read("host", "property", "list")
    assert {"property": "floor"} in openstack.read("host", "property", "list", "--all")
    openstack.do("host", "property", "set", "floor", "--public")
    assert {"property": "floor"} in openstack.read("host", "property", "list")


def test_the_command_creates_a_lease_of_a_day_that_starts_now(
    openstack: OpenStack, service: Service
) -> None:
    asked = "resource_type=physical:host,min=1,max=2"
    made = openstack.read("lease", "create", "a day", "--reservation", asked)
    service.until_lease_is(made["id"], "ACTIVE")
    shown = openstack.read("lease", "show", "a day")
    assert shown["status"] == "ACTIVE"
    length = moment(shown["end_date"]) - moment(shown["start_date"])
    assert abs(length - dt.timedelta(days=1)) < dt.timedelta(hours=1)
    assert "Deleted lease: a day" in openstack.do("lease", "delete", "a day")
    assert "a day" not in [lease["name"] for lease in openstack.read("lease", "list")]


def test_the_command_passes_properties_and_events(
    openstack: OpenStack, service: Service, noon: dt.datetime
) -> None:
    asked = (
        'resource_type=physical:host,min=1,max=1,hypervisor_properties=[">=","$vcpus","64"],'
        'resource_properties=["==","$hypervisor_hostname","sim-8"]'
    )
    warning = f"event_type=before_start_lease,event_date={at(noon, -10)}"
    dates = ("--start-date", at(noon), "--end-date", at(noon, 60), "--before-end-date")
    made = openstack.read(
        "lease", "create", "picky", *dates, at(noon, 45), "--reservation", asked, "--event", warning
    )
    lease = service.lease(made["id"])
    times = {event["event_type"]: event["time"] for event in lease["events"]}
    assert times["before_start_lease"] == f"{noon:%Y-%m-%d}T11:50:00.000000"
    assert times["before_end_lease"] == f"{noon:%Y-%m-%d}T12:45:00.000000"
    shown = openstack.read("allocation", "show", "host", "sim-8", "--lease-id", made["id"])
    assert json.loads(shown["reservations"])["lease_id"] == made["id"]


def test_the_command_renames_a_lease_and_gives_it_more_hosts(
    openstack: OpenStack, service: Service, lease: dict[str, Any]
) -> None:
    asked = f"id={lease['reservations'][0]['id']},min=2,max=3"
    name = f"{lease['name']}, renamed"
    openstack.do("lease", "set", "--name", name, "--reservation", asked, lease["name"])
    renamed = service.lease(lease["id"])
    assert (renamed["name"], renamed["reservations"][0]["max"]) == (name, 3)
    allocations = openstack.read("allocation", "list", "host", "--lease-id", lease["id"])
    assert len([host for host in allocations if host["reservations"]]) == 3
    openstack.do("lease", "delete", name)
    eventually(lambda: service.call("GET", f"/v1/leases/{lease['id']}").status_code == 404, "gone")


def test_the_command_creates_shows_and_deletes_an_address(openstack: OpenStack) -> None:
    made = openstack.read("floatingip", "create", "sim-public", "198.51.100.2")
    assert made["floating_ip_address"] == "198.51.100.2"
    assert [item["id"] for item in openstack.read("floatingip", "list")] == [made["id"]]
    assert openstack.read("floatingip", "show", made["id"]) == made
    assert "Deleted floatingip" in openstack.do("floatingip", "delete", made["id"])
    assert "not found" in openstack.refused("floatingip", "show", made["id"])


def test_the_command_reserves_addresses(openstack: OpenStack, service: Service) -> None:
    for number in (3, 4):
        openstack.do("floatingip", "create", "sim-public", f"198.51.100.{number}")
    asked = "resource_type=virtual:floatingip,network_id=sim-public,amount=1"
    named = f'{asked},required_floatingips=["198.51.100.4"]'
    made = openstack.read("lease", "create", "named", "--reservation", named)
    [mine] = service.until_lease_is(made["id"], "ACTIVE")["reservations"]
    assert list(mine["floatingips"]) == ["198.51.100.4"]
    more = f"id={mine['id']},amount=2,required_floatingips=[]"
    openstack.do("lease", "set", "named", "--reservation", more)
    eventually(
        lambda: (
            sorted(service.lease(made["id"])["reservations"][0]["floatingips"])
            == ["198.51.100.3", "198.51.100.4"]
        ),
        "both addresses are handed over",
    )
    openstack.do("lease", "delete", "named")
