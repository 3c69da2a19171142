"""OS::Climate::Lease, climate's own resource: all types, changes in place, complete when active."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.openstack import guests
from tests.openstack.accounts import Account, Project
from tests.openstack.heat import CREATED, HOST, UPDATED, until_gone
from tests.openstack.heat.conftest import MakeStack
from tests.openstack.templates import Template, template
from tests.support.process import Service

pytestmark = pytest.mark.timeout(400)

HOUR = 3600
ATTRIBUTES = {
    *("status", "reservations", "events", "reservation_id", "reservation_ids"),
    *("flavor_id", "flavor_ids"),
}


def lease(*reservations: Template, **properties: Any) -> Template:
    asked = {"duration": HOUR, **properties, "reservations": list(reservations)}
    return {"type": "OS::Climate::Lease", "properties": asked}


def hosts(count: int) -> Template:
    return {"resource_type": "physical:host", "params": {"min": count, "max": count}}


def instances(amount: int) -> Template:
    sizes = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1}
    return {"resource_type": "virtual:instance", "params": {"amount": amount, **sizes}}


def _in(seconds: float) -> str:
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="seconds")


def outputs() -> Template:
    return {name: {"value": {"get_attr": ["lease", name]}} for name in ATTRIBUTES}


def test_a_server_of_the_same_template_uses_the_lease(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account
) -> None:
    server = {
        "type": "OS::Nova::Server",
        "properties": {
            "image": guests.smallest(administrator.cloud)[1],
            "flavor": {"get_attr": ["lease", "flavor_id"]},
            "networks": [{"allocate_network": "none"}],
        },
    }
    leased = lease(instances(1), wait_until_active=True)
    made = stack(lab.member, template(outputs(), lease=leased, server=server))
    assert made.settled() == CREATED
    outputs_now = made.outputs
    assert outputs_now["status"] == "ACTIVE"
    assert outputs_now["flavor_ids"] == outputs_now["reservation_ids"] == [outputs_now["flavor_id"]]
    server_id, _ = made.resource("server")
    found = administrator.cloud.compute.get_server(server_id)
    assert guests.service_of(administrator, found) == HOST
    lease_id, _ = made.resource("lease")
    assert made.delete()[0] == "DELETE_COMPLETE"
    until_gone(climate, f"/v1/leases/{lease_id}")


def test_a_stack_update_changes_the_lease_in_place(
    stack: MakeStack, lab: Project, climate: Service
) -> None:
    first = lease(instances(1), start=_in(HOUR), name="first")
    made = stack(lab.member, template(outputs(), lease=first))
    assert made.settled() == CREATED
    lease_id, _ = made.resource("lease")
    [kept] = made.outputs["reservation_ids"]
    more = lease(instances(3), instances(2), start=_in(2 * HOUR), duration=2 * HOUR, name="second")
    assert made.update(template(outputs(), lease=more))[0] == UPDATED
    assert made.resource("lease")[0] == lease_id
    found = climate.ok("GET", f"/v2/leases/{lease_id}")
    assert found["name"] == "second"
    assert [item["params"]["amount"] for item in found["reservations"]] == [3, 2]
    ids = made.outputs["reservation_ids"]
    assert (ids[0], len(ids)) == (kept, 2)
    less = lease(instances(3), start=_in(2 * HOUR), duration=2 * HOUR, name="second")
    assert made.update(template(outputs(), lease=less))[0] == UPDATED
    assert made.outputs["reservation_ids"] == [kept]
    # It starts some seconds later than before, and lasts as long.
    found = climate.ok("GET", f"/v2/leases/{lease_id}")
    start, end = (datetime.fromisoformat(found[name]) for name in ("start", "end"))
    assert end - start == timedelta(hours=2)


def test_a_template_reserves_another_stack_and_changes_it(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account
) -> None:
    flavor, image = guests.smallest(administrator.cloud)
    networks = [{"allocate_network": "none"}]
    web = {
        "type": "OS::Nova::Server",
        "properties": {"image": image, "flavor": flavor, "networks": networks},
    }

    def reserving(*names: str) -> Template:
        inner = {"heat_template_version": "2016-10-14", "resources": dict.fromkeys(names, web)}
        # As text, because Heat would evaluate the functions of an object.
        reservation = {
            "resource_type": "virtual:stack",
            "params": {"template": json.dumps(inner)},
        }
        return template(outputs(), lease=lease(reservation, wait_until_active=True))

    def flavors() -> list[str]:
        found = lab.member.cloud.compute.servers()
        return [str(item.flavor["id"]) for item in found if item.status == "ACTIVE"]

    made = stack(lab.member, reserving("one"))
    assert made.settled() == CREATED
    [own, part] = climate.ok("GET", f"/v2/leases/{made.resource('lease')[0]}")["reservations"]
    assert made.outputs["reservation_ids"] == [own["id"]]
    assert flavors() == [f"reservation:{part['id']}"]
    assert made.update(reserving("one", "two"))[0] == UPDATED
    assert made.outputs["reservation_ids"] == [own["id"]]
    assert flavors() == 2 * [f"reservation:{part['id']}"]
    assert made.delete()[0] == "DELETE_COMPLETE"


def test_a_change_without_capacity_leaves_the_lease_unchanged(
    stack: MakeStack, lab: Project, climate: Service
) -> None:
    # Less than an hour ahead, a heads-up would be due, and its event change while we look.
    made = stack(lab.member, template(lease=lease(hosts(1), start=_in(2 * HOUR))))
    assert made.settled() == CREATED
    lease_id, _ = made.resource("lease")
    before = climate.ok("GET", f"/v2/leases/{lease_id}")
    status, reason = made.update(template(lease=lease(hosts(9), start=_in(2 * HOUR))))
    assert status == "UPDATE_FAILED"
    assert "Not enough hosts available" in reason
    assert climate.ok("GET", f"/v2/leases/{lease_id}") == before


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"duration": -1}, "duration"),
        ({"start": "yesterday"}, "start"),
    ],
)
def test_a_rejected_lease_fails_the_stack_with_the_message_of_climate(
    stack: MakeStack, lab: Project, properties: Template, sentence: str
) -> None:
    made = stack(lab.member, template(lease=lease(instances(1), **properties)))
    status, reason = made.settled()
    assert status == "CREATE_FAILED"
    assert sentence in reason


def test_a_stack_whose_lease_was_deleted_can_be_deleted(
    stack: MakeStack, lab: Project, climate: Service
) -> None:
    made = stack(lab.member, template(lease=lease(instances(1), start=_in(HOUR))))
    assert made.settled() == CREATED
    lease_id, _ = made.resource("lease")
    climate.ok("DELETE", f"/v2/leases/{lease_id}")
    until_gone(climate, f"/v1/leases/{lease_id}")
    assert made.delete()[0] == "DELETE_COMPLETE"
