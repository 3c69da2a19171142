"""Leased stacks: climate reserves their maximum, creates, changes and ends them."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import kombu
import pytest
from heatclient.client import Client
from heatclient.exc import HTTPNotFound
from openstack.connection import Connection

from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy, MakeProxy
from tests.openstack.deployment import Deployment
from tests.openstack.killing import LeaseCycle
from tests.openstack.proxy import Fault, FaultyProxy, no_fault
from tests.openstack.templates import Template
from tests.openstack.testbed import layout
from tests.openstack.testbed.servers import find_rabbitmq
from tests.support import servers
from tests.support.process import Program, eventually

pytestmark = pytest.mark.timeout(400)

HOSTS = settings.HOSTS[:2]
PLUGINS = (
    "physical.host.plugin,flavor.instance.plugin,virtual.floatingip.plugin,virtual.stack.plugin"
)
PATIENCE = 120.0


@pytest.fixture
def proxy(cloud: Connection, make_proxy: MakeProxy) -> FaultyProxy:
    return make_proxy(cloud.orchestration.get_endpoint())


@pytest.fixture
def notified(cloud: Connection) -> Iterator[dict[str, object]]:
    """Return options with which climate reads Heat's notifications, and does not poll.

    Its queue is removed after the managers have ended, which would create it again.
    """
    is_testbed = cloud.session.auth.auth_url == layout.KEYSTONE
    bus = find_rabbitmq() if is_testbed else None
    if bus is None:
        servers.absent(
            "openstack", "the address of Heat's message bus is known of the testbed only"
        )
    pool = f"climate-test-{uuid.uuid4().hex[:12]}"
    yield {
        "manager__sync_interval": 3600,
        "virtual:stack__notification_transport_url": bus.url,
        "virtual:stack__notification_pool": pool,
    }
    with (
        kombu.Connection(bus.url.replace("rabbit://", "amqp://")) as link,
        link.channel() as opened,
    ):
        opened.queue_delete(pool)


@pytest.fixture
def following(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return how climate notices changes in Heat: by polls, unless a test names a fixture."""
    name = getattr(request, "param", None)
    return dict(request.getfixturevalue(name)) if name else {"manager__sync_interval": 2}


@pytest.fixture
def deployed(following: dict[str, object], deploy: Deploy, proxy: FaultyProxy) -> Deployment:
    """Return climate with two hosts and no manager."""
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        manager__minutes_before_end_lease=0,
        heat__endpoint_override=proxy.url,
        **following,
        **{
            "virtual:stack__cloud": "heat",
            "virtual:floatingip__cloud": "neutron",
            "virtual:stack__end_patience": 20,
        },
    )
    made.register(*HOSTS)
    return made


@pytest.fixture
def manager(deployed: Deployment) -> Program:
    return deployed.start_manager()


class Heat:
    """The stacks of a project, as a member sees them."""

    def __init__(self, account: Account) -> None:
        session, region = account.cloud.session, account.cloud.config.get_region_name()
        self.client = Client("1", session=session, region_name=region, endpoint_type="publicURL")

    def __getitem__(self, stack_id: str) -> Any:
        """Return a stack; None if it does not exist or is deleted."""
        with suppress(HTTPNotFound):
            found = self.client.stacks.get(stack_id, resolve_outputs=False)
            return None if found.stack_status == "DELETE_COMPLETE" else found
        return None

    def settled(self, stack_id: str) -> str:
        """Wait until Heat completed the operation on a stack, and return its status."""

        def look() -> str | None:
            found = self[stack_id]
            status = "GONE" if found is None else found.stack_status
            return None if status.endswith("_IN_PROGRESS") else status

        return str(eventually(look, f"Heat is done with {stack_id}", PATIENCE))

    def remove_all(self) -> None:
        """Delete all stacks of the project, and wait until they are deleted."""
        eventually(self._has_none, "no stack is left", 2 * PATIENCE)

    def _has_none(self) -> bool:
        """Return whether no stack is listed; delete those that are."""
        listed = list(self.client.stacks.list())
        for stack in listed:
            # Those that are gone are listed until Heat has tidied up; a deletion may have failed.
            if self.settled(stack.id) != "GONE":
                with suppress(HTTPNotFound):
                    self.client.stacks.delete(stack.id)
        return not listed


@pytest.fixture
def heat(lab: Project) -> Iterator[Heat]:
    """Return the stacks of the project; the test deletes them at its end."""
    made = Heat(lab.member)
    yield made
    made.remove_all()


def image_of(cloud: Connection) -> str:
    return guests.smallest(cloud)[1]


def server(cloud: Connection, flavor: Any = "m1.tiny", **more: Any) -> Template:
    networks = more.pop("networks", [{"allocate_network": "none"}])
    properties = {"image": image_of(cloud), "flavor": flavor, "networks": networks, **more}
    return {"type": "OS::Nova::Server", "properties": properties}


def shop(cloud: Connection, largest: int = 3, **more: Template) -> Template:
    """Return a template of one server, and of a group that begins with one member."""
    member = server(cloud, {"get_param": "flavor"})
    group = {"min_size": 1, "max_size": largest, "desired_capacity": 1, "resource": member}
    policy = {
        "adjustment_type": "exact_capacity",
        "auto_scaling_group_id": {"get_resource": "workers"},
        "scaling_adjustment": largest,
    }
    return {
        "heat_template_version": "2016-10-14",
        "parameters": {"flavor": {"type": "string", "default": "m1.tiny"}},
        "resources": {
            "web": server(cloud),
            "workers": {"type": "OS::Heat::AutoScalingGroup", "properties": group},
            "grow": {"type": "OS::Heat::ScalingPolicy", "properties": policy},
            **more,
        },
    }


def asked(template: Template | None, **params: Any) -> dict[str, Any]:
    given = {"template": template, **params}
    return {"resource_type": "virtual:stack", "params": given}


def lease_body(*reservations: dict[str, Any]) -> dict[str, Any]:
    body = {"name": "a stack", "start": "now", "duration": 7200}
    return {**body, "reservations": list(reservations)}


def reserve(
    climate: Deployment, lab: Project, *reservations: dict[str, Any], start: str = "now"
) -> dict[str, Any]:
    body = {**lease_body(*reservations), "start": start}
    return dict(climate.http(lab.member).ok("POST", "/v2/leases", body))


def end(climate: Deployment, lab: Project, lease: dict[str, Any]) -> None:
    climate.http(lab.member).ok("PATCH", f"/v2/leases/{lease['id']}", {"end": "now"})


def until(
    climate: Deployment, lab: Project, lease: dict[str, Any], *statuses: str, allowed: bool = False
) -> Any:
    """Wait until a lease has one of the statuses, and return it."""

    def look() -> dict[str, Any] | None:
        found = climate.http(lab.member).ok("GET", f"/v2/leases/{lease['id']}")
        failures = [error for _, error in climate.query(ERRORS)]
        assert allowed or not failures
        return dict(found) if found["status"] in statuses else None

    return eventually(look, f"lease is {statuses}: {climate.query(ERRORS)}", PATIENCE)


ERRORS = "SELECT kind, last_error FROM events WHERE last_error IS NOT NULL"


def flavors_of(lease: dict[str, Any]) -> list[str]:
    live = [item for item in lease["reservations"] if item["status"] != "deleted"]
    return [item["id"] for item in live if item["resource_type"] == "flavor:instance"]


def servers_of(cloud: Connection, flavor: str) -> list[Any]:
    return list(cloud.compute.servers(all_projects=True, flavor=flavor))


def instances(cloud: Connection, amount: int) -> dict[str, Any]:
    flavor_id, _ = guests.smallest(cloud)
    params = {"flavor_id": flavor_id, "amount": amount}
    return {"resource_type": "flavor:instance", "params": params}


def fill(climate: Deployment, lab: Project, cloud: Connection) -> dict[str, Any]:
    """Reserve all free instances of the hosts, and return that lease."""
    body = lease_body(instances(cloud, 10_000))
    refusal = climate.http(lab.member).call("POST", "/v2/leases", body)
    assert refusal.status_code == HTTPStatus.CONFLICT, refusal.text
    lease = reserve(climate, lab, instances(cloud, refusal.json()["free"]))
    body = lease_body(instances(cloud, 1))
    refusal = climate.http(lab.member).call("POST", "/v2/leases", body)
    assert refusal.status_code == HTTPStatus.CONFLICT
    return lease


def test_a_stack_is_reserved_at_its_maximum_scales_to_it_and_ends_with_the_lease(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    lease = reserve(deployed, lab, asked(shop(cloud), stack_name="shop"))
    lease = until(deployed, lab, lease, "ACTIVE")
    [own, part] = lease["reservations"]
    flavor, stack_id = part["id"], own["details"]["stack_id"]
    assert part["params"]["amount"] == 4
    assert heat[stack_id].stack_name == "shop"
    assert len(servers_of(cloud, flavor)) == 2
    fill(deployed, lab, cloud)
    heat.client.resources.signal(stack_id, "grow")
    eventually(lambda: len(servers_of(cloud, flavor)) == 4, "it is at its maximum", PATIENCE)
    for item in servers_of(cloud, flavor):
        assert guests.settled(cloud, item.id).status == "ACTIVE"
        assert (item.project_id, item.user_id) == (lab.id, lab.member.user_id)
    assert deployed.audit() == []
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")
    assert heat[stack_id] is None
    assert servers_of(cloud, flavor) == []
    assert deployed.audit() == []


def changed(lease: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {"reservations": [{"id": lease["reservations"][0]["id"], "params": params}]}


@pytest.mark.nightly("takes 20 seconds")
def test_the_template_of_an_active_stack_changes_only_if_it_fits(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    lease = reserve(deployed, lab, asked(shop(cloud, 1)))
    lease = until(deployed, lab, lease, "ACTIVE")
    http, path = deployed.http(lab.member), f"/v2/leases/{lease['id']}"
    rest = fill(deployed, lab, cloud)
    too_large = changed(lease, template=shop(cloud, 3))
    refusal = http.call("PATCH", path, too_large)
    assert refusal.status_code == HTTPStatus.CONFLICT, refusal.text
    assert "servers of flavor m1.tiny in the stack" in refusal.json()["detail"]
    assert http.ok("GET", path) == lease
    http.call("DELETE", f"/v2/leases/{rest['id']}")
    eventually(
        lambda: http.call("GET", f"/v2/leases/{rest['id']}").status_code == 404, "it is gone"
    )
    larger = shop(cloud, 2, other=server(cloud, "m1.small"))
    after = http.ok("PATCH", path, changed(lease, template=larger))
    [tiny, small] = flavors_of(after)
    eventually(lambda: len(servers_of(cloud, small)) == 1, "the new server is there", PATIENCE)
    eventually(lambda: deployed.audit() == [], "all is as it should be", PATIENCE)
    stack_id = lease["reservations"][0]["details"]["stack_id"]
    assert heat.settled(stack_id) == "UPDATE_COMPLETE"
    http.ok("PATCH", path, changed(lease, template=shop(cloud, 2)))
    eventually(lambda: servers_of(cloud, small) == [], "it is gone again", PATIENCE)
    eventually(
        lambda: flavors_of(http.ok("GET", path)) == [tiny], "its room is given back", PATIENCE
    )
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")


def is_followed(climate: Deployment, lab: Project, lease: dict[str, Any], **amounts: int) -> bool:
    """Return whether a lease reserves these servers by flavor, and the project has only these."""
    found = climate.http(lab.member).ok("GET", f"/v2/leases/{lease['id']}")
    reserves = found["reservations"][0]["params"]["reserves"]["servers"]
    fits = {entry["flavor"]: entry["amount"] for entry in reserves} == amounts
    placed = {item.flavor["id"] for item in lab.member.cloud.compute.servers()}
    reserved = {f"reservation:{id_}" for id_ in flavors_of(found)}
    return fits and placed == reserved and not found["degraded"] and climate.audit() == []


@pytest.mark.parametrize(
    "following",
    ["notified", pytest.param(None, id="polls", marks=pytest.mark.nightly("takes a minute"))],
    indirect=True,
)
def test_follows_what_its_user_changes_in_heat(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    lease = until(deployed, lab, reserve(deployed, lab, asked(shop(cloud, 1))), "ACTIVE")
    stack_id = lease["reservations"][0]["details"]["stack_id"]
    template = shop(cloud, 2, other=server(cloud, "m1.small"))
    template["parameters"]["most"] = {"type": "number", "default": 2}
    template["resources"]["workers"]["properties"]["max_size"] = {"get_param": "most"}
    for change, tiny in (
        ({"template": template}, 3),
        ({"existing": True, "parameters": {"most": 4}}, 5),
    ):
        heat.client.stacks.update(stack_id, **change)
        fits = partial(is_followed, deployed, lab, lease, **{"m1.tiny": tiny, "m1.small": 1})
        eventually(fits, f"climate follows {change}", 2 * PATIENCE)
        assert heat.settled(stack_id) == "UPDATE_COMPLETE"
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")
    assert heat[stack_id] is None
    assert list(lab.member.cloud.compute.servers()) == []


class FollowCycle(LeaseCycle):
    """Leases of a stack that its user enlarges in Heat while the lease runs."""

    def __init__(
        self, climate: Deployment, lab: Project, heat: Heat, proxies: Sequence[FaultyProxy]
    ) -> None:
        super().__init__(climate, lab, *proxies)
        self._heat = heat

    def reservations(self) -> list[dict[str, Any]]:
        return [asked(shop(self._climate.cloud, 1))]

    def create(self, make_fault: Callable[[], Fault]) -> str:
        self.set_fault(make_fault())
        return str(reserve(self._climate, self._lab, *self.reservations())["id"])

    def run(self, make_fault: Callable[[], Fault]) -> list[Any]:
        """Run a lease with a fault while climate follows; return the state after that."""
        self.kills, self.steps = 0, []
        lease_id = self.create(lambda: no_fault)
        self._wait(lease_id, "ACTIVE")
        self.set_fault(make_fault())
        self.use(lease_id)
        states = [self.state(lease_id)]
        self.set_fault(no_fault)
        self.clean_up(lease_id)
        gone = self._climate.http(self._lab.member)
        self.wait_until(
            lambda: gone.call("GET", f"/v2/leases/{lease_id}").status_code == HTTPStatus.NOT_FOUND,
            "the lease is gone",
        )
        return states

    def use(self, lease_id: str) -> None:
        """Enlarge the stack in Heat, and wait until climate has followed."""
        http = self._climate.http(self._lab.member)
        lease = http.ok("GET", f"/v2/leases/{lease_id}")
        stack_id = lease["reservations"][0]["details"]["stack_id"]
        larger = shop(self._climate.cloud, 2, other=server(self._climate.cloud, "m1.small"))
        self._heat.client.stacks.update(stack_id, template=larger)
        amounts = {"m1.tiny": 3, "m1.small": 1}
        self.wait_until(
            lambda: (
                is_followed(self._climate, self._lab, lease, **amounts)
                and not self._climate.query(OPEN_UPDATES)
            ),
            "climate follows",
        )

    def state(self, lease_id: str) -> Any:
        lease = self._climate.http(self._lab.member).ok("GET", f"/v2/leases/{lease_id}")
        updates = [
            stack.stack_status
            for stack in self._heat.client.stacks.list()
            if stack.stack_status != "DELETE_COMPLETE"
        ]
        return [lease["status"], lease["degraded"], len(lease["reservations"]), updates]


OPEN_UPDATES = "SELECT id FROM events WHERE kind = 'update_lease' AND status <> 'DONE'"


@pytest.mark.nightly("takes 16 minutes")
@pytest.mark.timeout(3600)
def test_a_kill_at_any_step_changes_no_result_of_following_a_user(
    deploy: Deploy, make_proxy: MakeProxy, lab: Project, heat: Heat, cloud: Connection
) -> None:
    proxies = [
        make_proxy(cloud.session.get_endpoint(service_type=type_))
        for type_ in ("orchestration", "compute", "placement")
    ]
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        manager__claim_timeout=1,
        manager__minutes_before_end_lease=0,
        manager__sync_interval=2,
        heat__endpoint_override=proxies[0].url,
        nova__endpoint_override=proxies[1].url,
        placement__endpoint_override=proxies[2].url,
        **{"virtual:stack__cloud": "heat", "virtual:floatingip__cloud": "neutron"},
    )
    made.register(*HOSTS)
    cycle = FollowCycle(made, lab, heat, proxies)
    undisturbed = cycle.run_undisturbed()
    assert undisturbed == [["ACTIVE", False, 3, ["UPDATE_COMPLETE"]]]
    assert cycle.check_each_kill(undisturbed) > 3


def test_reports_a_change_in_heat_that_does_not_fit_and_keeps_it(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    lease = until(deployed, lab, reserve(deployed, lab, asked(shop(cloud, 1))), "ACTIVE")
    path, stack_id = f"/v2/leases/{lease['id']}", lease["reservations"][0]["details"]["stack_id"]
    fill(deployed, lab, cloud)
    heat.client.stacks.update(stack_id, template=shop(cloud, 9))

    def reason() -> str:
        found = deployed.http(lab.member).ok("GET", path)
        text = found["reservations"][0]["details"].get("not_reserved", "")
        assert found["degraded"] or not text
        return str(text)

    eventually(reason, "the lease says that the change does not fit", PATIENCE)
    assert "servers of flavor m1.tiny in the stack" in reason()
    group = heat.client.stacks.template(stack_id)["resources"]["workers"]["properties"]
    assert group["max_size"] == 9
    query = "SELECT event_type FROM outbox WHERE lease_id = ? AND event_type LIKE '%reserved'"
    assert deployed.query(query, lease["id"]) == [("lease.not_reserved",)]
    heat.client.stacks.update(stack_id, template=shop(cloud, 1))
    eventually(lambda: not reason(), "a change that fits is followed", PATIENCE)
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")


def test_rejects_resources_that_cannot_be_reserved_or_replaced_by_name(
    deployed: Deployment, lab: Project, cloud: Connection
) -> None:
    later = {"get_attr": ["web", "name"]}
    http = deployed.http(lab.member)
    for resource, words in (
        (server(cloud, later), "attribute of another resource"),
        (server(cloud, "m1.none"), "m1.none"),
        ({"type": "OS::Cinder::Volume", "properties": {"size": 1}}, "no type"),
        ({"type": "OS::Nova::FloatingIP", "properties": {"pool": "public"}}, "odd"),
        ({"type": "No::Such::Type"}, "No::Such::Type"),
    ):
        template = shop(cloud, odd=resource)
        refusal = http.call("POST", "/v2/leases", lease_body(asked(template)))
        assert refusal.status_code == HTTPStatus.BAD_REQUEST, refusal.text
        assert words in refusal.json()["detail"]
    assert deployed.query("SELECT id FROM leases") == []


def test_start_and_end_wait_for_an_absent_heat(
    deployed: Deployment, proxy: FaultyProxy, lab: Project, heat: Heat, cloud: Connection
) -> None:
    lease = reserve(deployed, lab, asked(shop(cloud, 1)))
    proxy.away = True
    deployed.start_manager()
    eventually(lambda: deployed.query(ERRORS), "the start fails", PATIENCE)
    proxy.away = False
    lease = until(deployed, lab, lease, "ACTIVE", allowed=True)
    [flavor] = flavors_of(lease)
    assert len(servers_of(cloud, flavor)) == 2
    proxy.away = True
    end(deployed, lab, lease)
    ends = f"{ERRORS} AND kind = 'end_lease'"
    eventually(lambda: deployed.query(ends), "the end fails", PATIENCE)
    assert len(servers_of(cloud, flavor)) == 2
    proxy.away = False
    until(deployed, lab, lease, "TERMINATED", allowed=True)
    assert servers_of(cloud, flavor) == []
    assert heat[lease["reservations"][0]["details"]["stack_id"]] is None


@pytest.mark.nightly("takes 26 seconds")
def test_suspend_restores_the_flavors_of_the_stack_first(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    template = {"heat_template_version": "2016-10-14", "resources": {"web": server(cloud)}}
    lease = reserve(deployed, lab, asked(template, on_end="suspend"))
    lease = until(deployed, lab, lease, "ACTIVE")
    [flavor], stack_id = flavors_of(lease), lease["reservations"][0]["details"]["stack_id"]
    [before] = servers_of(cloud, flavor)
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")
    assert heat[stack_id].stack_status == "SUSPEND_COMPLETE"
    assert cloud.compute.get_server(before.id).status == "SUSPENDED"
    assert servers_of(cloud, flavor) == []
    assert deployed.audit() == []


@pytest.mark.nightly("takes 21 seconds")
def test_an_adopted_stack_moves_to_reserved_flavors_and_back(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    template = {"heat_template_version": "2016-10-14", "resources": {"web": server(cloud)}}
    made = heat.client.stacks.create(stack_name="mine", template=template)["stack"]["id"]
    assert heat.settled(made) == "CREATE_COMPLETE"
    [web] = [item.physical_resource_id for item in heat.client.resources.list(made)]
    heat.client.actions.suspend(made)
    assert heat.settled(made) == "SUSPEND_COMPLETE"
    lease = reserve(deployed, lab, asked(None, stack_id=made))
    lease = until(deployed, lab, lease, "ACTIVE")
    [flavor] = flavors_of(lease)
    assert heat.settled(made) == "UPDATE_COMPLETE"
    assert [(item.id, item.status) for item in servers_of(cloud, flavor)] == [(web, "ACTIVE")]
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED")
    assert heat[made].stack_status == "SUSPEND_COMPLETE"
    assert cloud.compute.get_server(web).status == "SUSPENDED"
    assert deployed.audit() == []


@pytest.mark.nightly("takes 13 seconds")
def test_a_start_with_a_lost_trust_waits_until_the_owner_is_enabled(
    deployed: Deployment, lab: Project, heat: Heat, cloud: Connection, administrator: Account
) -> None:
    lease = reserve(deployed, lab, asked(shop(cloud, 1)))
    identity, user = administrator.cloud.identity, lab.member.user_id
    identity.update_user(user, is_enabled=False)
    try:
        deployed.start_manager()
        eventually(lambda: deployed.query(ERRORS), "the start fails", PATIENCE)
    finally:
        identity.update_user(user, is_enabled=True)
    lab.member.cloud.session.invalidate()
    lease = until(deployed, lab, lease, "ACTIVE", allowed=True)
    assert len(servers_of(cloud, flavors_of(lease)[0])) == 2
    end(deployed, lab, lease)
    until(deployed, lab, lease, "TERMINATED", allowed=True)


@pytest.mark.nightly("takes 28 seconds")
def test_a_stack_that_cannot_be_suspended_releases_its_capacity(
    deployed: Deployment, manager: Program, lab: Project, heat: Heat, cloud: Connection
) -> None:
    template = {"heat_template_version": "2016-10-14", "resources": {"web": server(cloud)}}
    lease = reserve(deployed, lab, asked(template, on_end="suspend"))
    lease = until(deployed, lab, lease, "ACTIVE")
    [flavor] = flavors_of(lease)
    [member] = servers_of(cloud, flavor)
    lab.member.cloud.compute.stop_server(member.id)
    stopped = "its user has stopped it"
    get = cloud.compute.get_server
    eventually(lambda: get(member.id).status == "SHUTOFF", stopped, PATIENCE)
    end(deployed, lab, lease)
    after = until(deployed, lab, lease, "TERMINATED", allowed=True)
    assert [item["status"] for item in after["reservations"]] == ["error", "deleted"]
    assert "FAILED" in after["reservations"][0]["details"]["error"]
    assert servers_of(cloud, flavor) == []
