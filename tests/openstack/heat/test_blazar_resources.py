"""climate serves Heat's own OS::Blazar::Lease and OS::Blazar::Host, unmodified."""

import pytest
from heatclient.exc import HTTPBadRequest
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot
from tests.openstack.heat import CREATED, HOST, ISOLATION, OTHER, present_minute, until_gone
from tests.openstack.heat.conftest import HostPolicy, MakeStack
from tests.openstack.templates import (
    HOST_ATTRIBUTES,
    LEASE_ATTRIBUTES,
    attributes,
    host,
    lease,
    server,
    template,
)
from tests.support.process import Service, date, reserve

pytestmark = pytest.mark.timeout(400)


def token_by_trust(trustor: Account, trustee: Account) -> str:
    asked = {
        "trustor_user_id": trustor.user_id,
        "trustee_user_id": trustee.user_id,
        "project_id": trustor.project_id,
        "impersonation": True,
        "roles": [{"name": trustor.role}],
    }
    identity = trustor.cloud.identity
    # Keystone, busy for Heat, once took the member's token for one of Heat's own domain: 403.
    answers = (identity.post("/OS-TRUST/trusts", json={"trust": asked}) for _ in range(3))
    trust = next(answer for answer in answers if answer.ok).json()["trust"]
    auth = v3.Password(
        trustee.environment["OS_AUTH_URL"],
        user_id=trustee.user_id,
        password=trustee.environment["OS_PASSWORD"],
        trust_id=trust["id"],
    )
    return str(auth.get_token(Session()))


def test_a_stack_creates_and_deletes_a_host_and_its_lease(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account
) -> None:
    # Less than an hour ahead, a heads-up would be due, and its event change while we look.
    start = date(90)
    made = stack(
        lab.admin,
        template(
            attributes("host", HOST_ATTRIBUTES | {"show"})
            | attributes("lease", LEASE_ATTRIBUTES | {"show"}),
            host=host(OTHER, from_heat="yes"),
            lease=lease(start, expression='["==", "$from_heat", "yes"]', depends_on="host"),
        ),
    )
    assert made.settled() == CREATED
    (host_id, host_shown), (lease_id, lease_shown) = made.resource("host"), made.resource("lease")
    assert host_shown == climate.ok("GET", f"/v1/os-hosts/{host_id}")["host"]
    assert host_shown["from_heat"] == "yes"
    assert lease_shown == climate.lease(lease_id)
    assert made.outputs == {
        **{f"host.{name}": host_shown[name] for name in HOST_ATTRIBUTES},
        **{f"lease.{name}": lease_shown[name] for name in LEASE_ATTRIBUTES},
        "host.show": host_shown,
        "lease.show": lease_shown,
    }
    taken = climate.ok("GET", f"/v1/os-hosts/allocations?lease_id={lease_id}")["allocations"]
    assert [item["resource_id"] for item in taken if item["reservations"]] == [host_id]
    assert traces.holders(administrator.cloud, OTHER) == [settings.FREE_POOLS[ISOLATION]]
    assert made.delete()[0] == "DELETE_COMPLETE"
    assert climate.call("GET", f"/v1/leases/{lease_id}").status_code == 404
    assert climate.call("GET", f"/v1/os-hosts/{host_id}").status_code == 404
    assert traces.holders(administrator.cloud, OTHER) == []


@pytest.mark.usefixtures("hosts_for_members")
def test_the_deletion_of_a_stack_ends_its_active_lease(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account, boot: Boot
) -> None:
    reserved = lease(present_minute())
    made = stack(lab.member, template(lease=reserved))
    assert made.settled() == CREATED
    lease_id, shown = made.resource("lease")
    assert (shown["user_id"], shown["project_id"]) == (lab.member.user_id, lab.id)
    climate.until_lease_is(lease_id, "ACTIVE")
    hint = {"reservation": shown["reservations"][0]["id"]}
    beside = boot(lab.member, "beside-the-stack", scheduler_hints=hint)
    in_it = server(
        beside.image.id,
        beside.flavor.id,
        reservation={"get_attr": ["lease", "reservations", 0, "id"]},
    )
    assert made.update(template(lease=reserved, server=in_it))[0] == "UPDATE_COMPLETE"
    server_id, _ = made.resource("server")
    found = [administrator.cloud.compute.get_server(item) for item in (beside.id, server_id)]
    assert [guests.host_of(administrator, item) for item in found] == [(HOST, HOST)] * 2
    assert made.delete()[0] == "DELETE_COMPLETE"
    until_gone(climate, f"/v1/leases/{lease_id}")
    assert all(guests.is_gone(administrator.cloud, item.id) for item in found)
    assert traces.holders(administrator.cloud, HOST) == [settings.FREE_POOLS[ISOLATION]]


@pytest.mark.usefixtures("hosts_for_members")
def test_another_stack_boots_servers_with_the_flavor_of_an_instance_lease(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account
) -> None:
    flavor = {"value": {"get_attr": ["lease", "reservations", 0, "flavor_id"]}}
    reserved = lease(present_minute())
    size = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1}
    reserved["properties"]["reservations"] = [
        # Heat requests anti-affinity by default.
        {"resource_type": "virtual:instance", "amount": 1, **size}
    ]
    made = stack(lab.member, template({"flavor": flavor}, lease=reserved))
    assert made.settled() == CREATED
    lease_id, shown = made.resource("lease")
    climate.until_lease_is(lease_id, "ACTIVE")
    assert made.outputs["flavor"] == shown["reservations"][0]["id"]
    _, image = guests.smallest(administrator.cloud)
    guest = server(image, made.outputs["flavor"], None)
    del guest["properties"]["scheduler_hints"]
    inside = stack(lab.member, template(server=guest))
    assert inside.settled() == CREATED
    assert traces.servers_on(administrator.cloud, [HOST]) == [inside.resource("server")[0]]


@pytest.mark.usefixtures("hosts_for_members")
@pytest.mark.parametrize(
    ("start", "count", "expression", "sentence"),
    [
        (60, 2, "", "Not enough hosts available: at least 2 requested"),
        (60, 1, '["==", "$ssd"]', "expected three items as in"),
        (-60, 1, "", "Start date must be later than current date"),
    ],
)
def test_a_rejected_lease_fails_the_stack_with_the_message_of_climate(
    stack: MakeStack, lab: Project, start: float, count: int, expression: str, sentence: str
) -> None:
    made = stack(lab.member, template(lease=lease(date(start), count, expression)))
    status, reason = made.settled()
    assert status == "CREATE_FAILED"
    assert sentence in reason


def test_a_stack_cannot_delete_a_reserved_host_and_shows_the_reason(
    stack: MakeStack, lab: Project, climate: Service
) -> None:
    made = stack(lab.admin, template(host=host(OTHER, from_heat="reserved")))
    assert made.settled() == CREATED
    wanted = lease(date(60), expression='["==", "$from_heat", "reserved"]')
    holder = stack(lab.admin, template(lease=wanted))
    assert holder.settled() == CREATED
    status, reason = made.delete()
    assert status == "DELETE_FAILED"
    assert "The host is reserved." in reason
    assert holder.delete()[0] == "DELETE_COMPLETE"


def test_a_member_needs_access_to_hosts_to_lease_them(
    stack: MakeStack, lab: Project, host_policy: HostPolicy
) -> None:
    wanted = template(lease=lease(date(60)))
    with pytest.raises(HTTPBadRequest, match="Policy doesn't allow oshosts:get"):
        stack(lab.member, wanted)
    host_policy.allow()
    assert stack(lab.member, wanted).settled() == CREATED


def test_accepts_a_token_that_heat_got_by_a_trust(climate: Service, lab: Project) -> None:
    token = token_by_trust(lab.member, lab.reader)
    path = f"/v1/leases/{reserve(Service(climate.port, token), date(60))}"
    made = climate.ok("GET", path)["lease"]
    climate.ok("DELETE", path)
    assert (made["user_id"], made["project_id"]) == (lab.member.user_id, lab.id)
    assert made["trust_id"] is None


@pytest.mark.usefixtures("hosts_for_members")
@pytest.mark.parametrize("gone", ["deleted", "over"])
def test_a_stack_whose_lease_was_deleted_can_be_deleted(
    stack: MakeStack, lab: Project, climate: Service, gone: str
) -> None:
    start = present_minute() if gone == "over" else date(60)
    made = stack(lab.member, template(lease=lease(start)))
    assert made.settled() == CREATED
    lease_id, _ = made.resource("lease")
    path = f"/v1/leases/{lease_id}"
    if gone == "deleted":
        climate.ok("DELETE", path)
    else:
        climate.until_lease_is(lease_id, "ACTIVE")
        climate.ok("PUT", path, {"end_date": date(0)})
        climate.until_lease_is(lease_id, "TERMINATED")
    assert made.delete()[0] == "DELETE_COMPLETE"
    assert climate.call("GET", path).status_code == 404
