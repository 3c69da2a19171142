"""Reserved instances whose servers climate boots as the lease's user, on a real cloud."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException
from keystoneauth1 import session
from keystoneauth1.identity import v3
from openstack.exceptions import NotFoundException

from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.test_instances import instances, remains
from tests.support.process import Service, date, eventually

HOSTS = settings.HOSTS[:2]
PLUGINS = "physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def lab(project: MakeProject) -> Project:
    """Return a project for one test, which removes roles of its users."""
    return project("booted")


@pytest.fixture
def climate(deploy: Deploy) -> Iterator[Deployment]:
    """Return climate with two hosts and frequent checks of trusts."""
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        manager__sync_interval=1,
        manager__event_max_retries=1,
        trusts__check_interval=1,
    )
    made.start_manager()
    made.register(*HOSTS)
    yield made
    for trust_id in made.trusts():
        with contextlib.suppress(NotFoundException):
            made.revoke(trust_id)


def booting(lab: Project, amount: int = 2, **fields: Any) -> dict[str, Any]:
    _, image = guests.smallest(lab.member.cloud)
    server = {"imageRef": image, "networks": "none", "name": "web"}
    return instances(amount, **{"on_start": "create", "server": server, **fields})


def servers_of(account: Account) -> dict[str, str]:
    """Return the status of the project's servers, by name."""
    return {server.name: server.status for server in account.cloud.compute.servers()}


def test_boots_servers_as_the_user_and_deletes_them_at_the_end(
    climate: Deployment, lab: Project
) -> None:
    lease = climate.reserve(lab.member, reservations=[booting(lab)])
    assert len(climate.trusts()) == 1
    [reservation] = climate.until(lab.member, lease["id"], "ACTIVE")["reservations"]
    servers = list(lab.member.cloud.compute.servers())
    assert {server.name: server.status for server in servers} == {
        "web-1": "ACTIVE",
        "web-2": "ACTIVE",
    }
    assert {server.user_id for server in servers} == {lab.member.user_id}
    assert {server.id for server in servers} == set(reservation["servers"])
    assert climate.audit() == []
    climate.end(lab.member, lease["id"])
    assert servers_of(lab.member) == {}
    assert remains(climate.cloud, reservation["id"]) == []
    eventually(lambda: climate.trusts() == [], "the trust is revoked")


def test_the_project_owns_the_images_of_deleted_servers(climate: Deployment, lab: Project) -> None:
    lease = climate.reserve(lab.member, reservations=[booting(lab, on_end="snapshot")])
    climate.until(lab.member, lease["id"], "ACTIVE")
    climate.end(lab.member, lease["id"])
    assert servers_of(lab.member) == {}
    images = list(lab.member.cloud.image.images(owner=lab.id))
    assert sorted(image.name for image in images) == ["reserved_web-1", "reserved_web-2"]
    for image in images:
        lab.member.cloud.image.delete_image(image)


def test_a_start_beyond_the_quota_shows_the_reason_and_keeps_the_capacity(
    climate: Deployment, lab: Project
) -> None:
    climate.cloud.compute.update_quota_set(lab.id, instances=1)
    lease = climate.reserve(lab.member, reservations=[booting(lab)])
    climate.until(lab.member, lease["id"], "ERROR")
    assert "Quota exceeded" in climate.reason(lease["id"])
    # Nova may take both and refuse either later, as it does not count what it has not scheduled;
    # if it refuses both, the next attempt is a minute away.
    allowed = "as many as the quota allows are there"
    eventually(lambda: list(servers_of(lab.member).values()) == ["ACTIVE"], allowed, 150)
    climate.cloud.compute.update_quota_set(lab.id, instances=10)
    _retry_now(climate)
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert servers_of(lab.member) == {"web-1": "ACTIVE", "web-2": "ACTIVE"}


@pytest.mark.parametrize("by", ["a trust", "an application credential"])
def test_rejects_a_delegated_token_with_the_reason(
    climate: Deployment, lab: Project, by: str
) -> None:
    body = {
        "name": "delegated",
        "start_date": date(60),
        "end_date": date(120),
        "reservations": [booting(lab)],
        "events": [],
    }
    token = _token_by_trust(lab) if by == "a trust" else _token_by_application_credential(lab)
    answer = Service(climate.port, token).call("POST", "/v1/leases", body)
    assert answer.status_code == 403
    assert f"with a token from {by}" in answer.json()["error_message"]
    assert climate.query("SELECT id FROM leases") == []
    body["reservations"] = [instances()]
    assert Service(climate.port, token).call("POST", "/v1/leases", body).status_code == 201


def test_a_server_that_failed_to_boot_is_reported_and_booted_again(
    climate: Deployment, lab: Project
) -> None:
    images = lab.member.cloud.image
    strange = {"disk_format": "raw", "container_format": "bare", "hw_architecture": "mips"}
    image = images.create_image("strange", data=b"strange", wait=True, **strange)
    server = {"imageRef": image.id, "networks": "none"}
    lease = climate.reserve(
        lab.member, reservations=[instances(1, on_start="create", server=server)]
    )
    climate.until(lab.member, lease["id"], "ERROR")
    assert "No valid host" in climate.reason(lease["id"])
    images.update_image(image.id, hw_architecture="x86_64")
    _retry_now(climate)
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert servers_of(lab.member) == {"lease": "ACTIVE"}
    climate.end(lab.member, lease["id"])
    images.delete_image(image.id)


def test_rejects_an_image_that_the_user_cannot_access(
    climate: Deployment, lab: Project, administrator: Account
) -> None:
    images = administrator.cloud.image
    raw = {"disk_format": "raw", "container_format": "bare"}
    image = images.create_image("private", data=b"-", wait=True, visibility="private", **raw)
    for image_id in (image.id, "no/such?image"):
        server = {"imageRef": image_id, "networks": "none"}
        with pytest.raises(BlazarClientException, match="could not be found"):
            climate.reserve(lab.member, reservations=[booting(lab, server=server)])
    lease = climate.reserve(lab.member, reservations=[booting(lab)], start=date(60))
    [reservation], params = lease["reservations"], {"server": {**server, "imageRef": image.id}}
    change = {"reservations": [{"id": reservation["id"], "params": params}]}
    answer = climate.http(lab.member).call("PATCH", f"/v2/leases/{lease['id']}", change)
    assert (answer.status_code, "could not be found" in answer.text) == (400, True)
    climate.http(lab.member).ok("DELETE", f"/v1/leases/{lease['id']}")
    images.delete_image(image.id)


def shown(climate: Deployment, lab: Project, lease_id: str) -> dict[str, Any]:
    return dict(climate.http(lab.admin).ok("GET", f"/v2/leases/{lease_id}"))


def trust_notifications(climate: Deployment, lease_id: str) -> list[str]:
    query = "SELECT event_type FROM outbox WHERE lease_id = ? AND event_type LIKE '%trust%'"
    return [kind for (kind,) in climate.query(query + " ORDER BY id", lease_id)]


def test_reports_a_trust_lost_and_restored_before_the_start(
    climate: Deployment, lab: Project, administrator: Account
) -> None:
    identity = administrator.cloud.identity
    role = lab.id, lab.member.user_id, identity.find_role("member")
    asked = booting(lab)
    lease = climate.reserve(lab.member, reservations=[asked], start=date(60))
    identity.unassign_project_role_from_user(*role)
    eventually(lambda: shown(climate, lab, lease["id"])["trust_lost"], "the trust is lost")
    found = shown(climate, lab, lease["id"])
    assert (found["status"], found["degraded"]) == ("PENDING", True)
    assert "the user lost a role" in found["trust_lost"]
    identity.assign_project_role_to_user(*role)
    eventually(lambda: not shown(climate, lab, lease["id"])["degraded"], "the trust works again")
    assert trust_notifications(climate, lease["id"]) == ["lease.trust_lost", "lease.trust_restored"]


@pytest.mark.nightly("takes 90 seconds")
def test_a_start_as_a_disabled_user_succeeds_after_the_user_is_enabled(
    climate: Deployment, lab: Project, administrator: Account
) -> None:
    identity = administrator.cloud.identity
    asked = booting(lab, amount=1)
    # Dates are whole minutes: this one is 30 to 90 s away.
    lease = climate.reserve(lab.member, reservations=[asked], start=date(1.5))
    user = lab.member.user_id
    identity.update_user(user, is_enabled=False)
    failed = "it cannot be started"
    eventually(lambda: climate.http(lab.admin).lease(lease["id"])["status"] == "ERROR", failed, 150)
    assert "DeadTrust" in climate.reason(lease["id"])
    identity.update_user(user, is_enabled=True)
    climate.until(lab.admin, lease["id"], "ACTIVE")
    assert servers_of(lab.admin) == {"web": "ACTIVE"}


def test_a_change_by_the_owner_renews_the_trust(climate: Deployment, lab: Project) -> None:
    lease = climate.reserve(lab.member, reservations=[booting(lab)], start=date(60))
    [before] = climate.trusts()
    climate.revoke(before)
    eventually(lambda: shown(climate, lab, lease["id"])["trust_lost"], "the trust is lost")
    for account, is_lost in ((lab.admin, True), (lab.member, False)):
        climate.http(account).ok("PATCH", f"/v2/leases/{lease['id']}", {})
        assert bool(shown(climate, lab, lease["id"])["trust_lost"]) is is_lost
    eventually(lambda: len(climate.trusts()) == 1, "the old one is not to be revoked any more")
    assert climate.trusts() != [before]
    climate.http(lab.member).ok("DELETE", f"/v1/leases/{lease['id']}")
    eventually(lambda: climate.trusts() == [], "there is none")


def _token_by_trust(lab: Project) -> str:
    identity = lab.member.cloud.identity
    trust = identity.create_trust(
        trustor_user_id=lab.member.user_id,
        trustee_user_id=lab.admin.user_id,
        project_id=lab.id,
        is_impersonation=True,
        roles=[{"name": "member"}],
    )
    given = lab.admin.environment
    auth = v3.Password(
        given["OS_AUTH_URL"],
        username=given["OS_USERNAME"],
        password=given["OS_PASSWORD"],
        user_domain_id=given["OS_USER_DOMAIN_ID"],
        trust_id=trust.id,
    )
    return str(session.Session(auth=auth).get_token())


def _token_by_application_credential(lab: Project) -> str:
    cloud = lab.member.cloud
    made = cloud.identity.create_application_credential(cloud.current_user_id, "automat")
    auth = v3.ApplicationCredential(
        lab.member.environment["OS_AUTH_URL"],
        application_credential_id=made.id,
        application_credential_secret=made.secret,
    )
    return str(session.Session(auth=auth).get_token())


def _retry_now(climate: Deployment) -> None:
    """Let managers retry failed events now, as an operator can."""
    climate.manage("audit", "--repair")
