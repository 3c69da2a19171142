"""Reservations of volumes on a real Cinder, by python-blazarclient."""

import configparser
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from blazarclient.exception import BlazarClientException
from openstack.exceptions import HttpException

from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import FaultyProxy
from tests.openstack.storage import Base
from tests.support.process import eventually

pytestmark = pytest.mark.timeout(180)

MakeClimate = Callable[..., Deployment]
PLUGIN = {
    "manager__plugins": "virtual.volume.plugin",
    "virtual:volume__cloud": "cinder",
    "virtual:volume__stuck_after": 3,
}


def endpoint_of(proxy: FaultyProxy) -> str:
    """Return the proxy's endpoint, for any project."""
    return f"http://{urlsplit(proxy.url).netloc}/v3/%(project_id)s"


@pytest.fixture
def make_climate(base: Base, deploy: Deploy) -> MakeClimate:
    """Return a function that deploys climate with one manager and the volume type.

    The deployment stops before the type is deleted; the order of the fixtures ensures that.
    """

    def make(**options: object) -> Deployment:
        given = {"manager__claim_timeout": 1, "manager__sync_interval": 1, **options}
        made = deploy("blazar", (), **PLUGIN, **given)
        base.register(made.http(made.administrator))
        made.start_manager()
        return made

    return make


def reservation_of(base: Base, amount: int = 2, **params: Any) -> dict[str, Any]:
    known = {"volume_type": base.name, "amount": amount, "size": 1}
    return {"resource_type": "virtual:volume", **known, **params}


def audit(climate: Deployment, base: Base, *arguments: str) -> list[str]:
    """Return the drift that the audit reports for our leases and volumes."""
    ours = [*base.types(), *(id_ for (id_,) in climate.query("SELECT id FROM leases"))]
    found = climate.manage("audit", *arguments)
    return [line for line in found if any(item in line for item in ours)]


def check_over(climate: Deployment, base: Base, lab: Project) -> None:
    """Check that nothing remains of the reservation, nor of its trust."""
    assert base.types() == {}
    assert audit(climate, base) == []
    trusts = "/OS-TRUST/trusts"

    def are_gone() -> bool:
        found = climate.cloud.identity.get(trusts).json()["trusts"]
        return not [item for item in found if item["project_id"] == lab.id]

    eventually(are_gone, "no trust is left")


# The whole life.


def test_a_lease_owns_its_volumes_from_start_to_end(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    climate = make_climate()
    lease = climate.start_lease(lab.member, reservation_of(base))
    assert lease["trust_id"] is None, "users do not see it"
    [mine] = lease["reservations"]
    name = mine["reserved_type"]
    there = base.volumes(name)
    assert sorted(item["id"] for item in there) == mine["volumes"]
    for item in there:
        assert (item["size"], item["status"]) == (1, "available")
        assert item["os-vol-tenant-attr:tenant_id"] == lab.id
        assert item["user_id"] == lab.member.user_id
        assert item["metadata"] == {"climate_reservation": mine["id"]}
    theirs = lab.member.cloud.block_storage
    with pytest.raises(HttpException, match="quota"):
        theirs.create_volume(size=1, volume_type=name)
    assert audit(climate, base) == []
    climate.by(lab.member).lease.update(lease["id"], reservations=[{"id": mine["id"], "amount": 3}])
    eventually(lambda: len(base.volumes(name)) == 3, "the third volume is there")
    eventually(lambda: audit(climate, base) == [], "the manager is done")
    climate.end(lab.member, lease["id"])
    assert base.volumes(name) == []
    check_over(climate, base, lab)


def test_the_project_creates_volumes_up_to_the_reserved_size(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    climate = make_climate()
    lease = climate.start_lease(lab.member, reservation_of(base, 3, on_start="nothing"))
    name = lease["reservations"][0]["reserved_type"]
    assert base.volumes(name) == []
    theirs = lab.member.cloud.block_storage
    mine = theirs.create_volume(size=2, volume_type=name)
    theirs.wait_for_status(mine, interval=0.5)
    with pytest.raises(HttpException, match="quota"):
        theirs.create_volume(size=2, volume_type=name)
    climate.end(lab.member, lease["id"])
    assert base.volumes(name) == []
    check_over(climate, base, lab)


def test_the_end_detaches_a_volume_and_deletes_its_snapshots(
    make_climate: MakeClimate, base: Base, lab: Project, boot: Boot
) -> None:
    climate = make_climate()
    lease = climate.start_lease(lab.member, reservation_of(base, 3, on_start="nothing"))
    name = lease["reservations"][0]["reserved_type"]
    theirs, guest = lab.member.cloud, boot(lab.member, "guest")
    mine = theirs.block_storage.create_volume(size=1, volume_type=name)
    theirs.block_storage.wait_for_status(mine, interval=0.5)
    snapshot = theirs.block_storage.create_snapshot(volume_id=mine.id)
    theirs.block_storage.wait_for_status(snapshot, interval=0.5)
    theirs.compute.create_volume_attachment(guest, volume_id=mine.id)
    theirs.block_storage.wait_for_status(mine, status="in-use", interval=0.5)
    climate.end(lab.member, lease["id"])
    assert base.volumes(name) == []
    assert theirs.compute.get_server(guest.id).attached_volumes == []
    check_over(climate, base, lab)


def test_kept_volumes_use_capacity_until_they_are_deleted(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    climate = make_climate()
    lease = climate.start_lease(lab.member, reservation_of(base, 6, on_end="keep"))
    made = lease["reservations"][0]["volumes"]
    climate.end(lab.member, lease["id"])
    kept = base.volumes()
    assert sorted(volume["id"] for volume in kept) == made
    assert {(volume["os-vol-tenant-attr:tenant_id"], *volume["metadata"]) for volume in kept} == {
        (lab.id,)
    }
    check_over(climate, base, lab)
    wish = reservation_of(base, 5, on_start="nothing")

    def is_full() -> bool:
        try:
            later = climate.reserve(lab.member, start=_date(30), end=_date(60), reservations=[wish])
        except BlazarClientException as error:
            return "Not enough units" in str(error)
        climate.by(lab.member).lease.delete(later["id"])
        return False

    eventually(is_full, "what was kept is not promised to others")
    for volume in kept:
        lab.member.cloud.block_storage.delete_volume(volume["id"])
    eventually(lambda: not is_full(), "it can be booked again")


def _date(minutes: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() + minutes * 60))


# What can be registered.


def test_only_a_private_volume_type_can_be_registered(
    deploy: Deploy, base: Base, lab: Project, administrator: Account
) -> None:
    climate = deploy("blazar", (), **PLUGIN)
    admin = climate.http(climate.administrator)
    storage = administrator.cloud.block_storage
    wanted = {"resource_type": "virtual:volume", "properties": {"gigabytes": "10"}}

    def refused(name: str) -> str:
        answer = admin.call("POST", "/v2/resources", {**wanted, "name": name})
        assert answer.status_code == 409
        return str(answer.json()["detail"])

    public = storage.create_type(name=f"{base.name}-public")
    try:
        assert "it is public" in refused(public.name)
        assert "openstack volume type create --private" in refused(public.name)
    finally:
        storage.delete_type(public)
    storage.add_type_access(base.id, lab.id)
    assert f"projects {lab.id} have access to it" in refused(base.name)
    storage.remove_type_access(base.id, lab.id)
    unknown = admin.call("POST", "/v2/resources", {**wanted, "name": base.name, "properties": {}})
    assert "is unknown to Cinder" in unknown.json()["detail"]
    assert base.register(admin)["properties"]["name"] == base.name


# What goes wrong.


@pytest.mark.nightly("takes 16 seconds; Nova and Heat stay away in others")
def test_start_and_end_wait_for_an_absent_cinder(
    make_climate: MakeClimate, base: Base, lab: Project, cinder: FaultyProxy
) -> None:
    climate = make_climate(cinder__endpoint_override=endpoint_of(cinder))
    later = climate.reserve(lab.member, start=_date(60), reservations=[reservation_of(base)])
    cinder.away = True
    climate.http(lab.member).ok("PATCH", f"/v2/leases/{later['id']}", {"start": "now"})
    lease_id = later["id"]
    climate.check_status_stays(lab.member, lease_id, "STARTING")
    cinder.away = False
    lease = climate.until(lab.member, lease_id, "ACTIVE")
    name = lease["reservations"][0]["reserved_type"]
    assert len(base.volumes(name)) == 2
    cinder.away = True
    climate.end_soon(lab.member, lease_id)
    climate.check_status_stays(lab.member, lease_id, "TERMINATING")
    assert len(base.volumes(name)) == 2
    cinder.away = False
    climate.until(lab.member, lease_id, "TERMINATED")
    assert base.volumes(name) == []
    check_over(climate, base, lab)


def test_a_start_beyond_the_quota_succeeds_after_the_quota_grows(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    climate = make_climate(manager__event_max_retries=0)
    base.set_quota(lab.id, gigabytes=1)
    lease = climate.reserve(lab.member, reservations=[reservation_of(base)])
    climate.until(lab.member, lease["id"], "ERROR")
    assert "exceeds allowed gigabytes quota" in climate.reason(lease["id"])
    base.set_quota(lab.id, gigabytes=100)
    climate.manage("audit", "--repair")  # an operator does not want to wait
    found = climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(base.volumes(found["reservations"][0]["reserved_type"])) == 2
    climate.end(lab.member, lease["id"])
    check_over(climate, base, lab)


@pytest.mark.parametrize(
    "status",
    [
        "deleting",
        "error_deleting",
        pytest.param("uploading", marks=pytest.mark.nightly("takes 8 seconds more")),
    ],
)
def test_the_end_resets_and_deletes_a_stuck_volume(
    make_climate: MakeClimate, base: Base, lab: Project, status: str
) -> None:
    climate = make_climate()
    lease = climate.start_lease(lab.member, reservation_of(base))
    [mine] = lease["reservations"]
    hang(mine["volumes"][0], status)
    climate.end(lab.member, lease["id"])
    assert base.volumes(mine["reserved_type"]) == []
    check_over(climate, base, lab)


def hang(volume_id: str, status: str) -> None:
    """Set a volume's status in the database; Cinder's API does not allow that."""
    file = Path(os.environ.get("OPENSTACK_DIR", ".openstack")) / "conf/cinder.conf"
    conf = configparser.ConfigParser(interpolation=None, strict=False)
    if not conf.read(file):
        pytest.skip("the database of this Cinder is out of reach")
    engine = sa.create_engine(conf["database"]["connection"])
    change = "UPDATE volumes SET status = :status, updated_at = UTC_TIMESTAMP() WHERE id = :id"
    with engine.begin() as connection:
        connection.execute(sa.text(change), {"status": status, "id": volume_id})
    engine.dispose()


def test_an_audit_repairs_only_volume_types_of_reservations(
    make_climate: MakeClimate, base: Base, lab: Project, administrator: Account
) -> None:
    climate = make_climate(manager__sync_interval=3600)
    lease = climate.start_lease(lab.member, reservation_of(base, on_start="nothing"))
    [mine] = lease["reservations"]
    storage = administrator.cloud.block_storage
    base.set_quota(lab.id, **{f"volumes_{mine['reserved_type']}": 9})
    left = storage.create_type(
        name="reservation:gone",
        is_public=False,
        description=f"climate reservation:gone of {base.id}",
    )
    others = storage.create_type(name=f"{base.name}-other", is_public=False)
    try:
        said = audit(climate, base, "--repair")
        assert len(said) == 2, said
        assert any("has a quota of 9 volumes and 2 GiB, not 2 and 2" in line for line in said)
        assert any("reservation:gone is of no running reservation" in line for line in said)
        eventually(lambda: audit(climate, base) == [], "all is as it should be")
        assert list(base.types()) == [mine["reserved_type"]]
        assert storage.get_type(others).name == others.name
    finally:
        storage.delete_type(others)
        storage.delete_type(left)
    climate.end(lab.member, lease["id"])
    check_over(climate, base, lab)


# Open reservations.


def test_volumes_without_a_type_use_an_open_reservation(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    """The former default type returns at the end, and the volumes are deleted."""
    climate, theirs = make_climate(), lab.member.cloud.block_storage
    former = base.cloud.block_storage.create_type(name=f"{base.name}-former")
    base.set_default(lab.id, former.id)
    try:
        lease = climate.start_lease(lab.member, reservation_of(base, 3, match="open"))
        name = lease["reservations"][0]["reserved_type"]
        assert audit(climate, base) == []
        mine = theirs.create_volume(size=2)
        theirs.wait_for_status(mine, interval=0.5)
        assert [volume["id"] for volume in base.volumes(name)] == [mine.id]
        with pytest.raises(HttpException, match="quota"):
            theirs.create_volume(size=2)
        base.set_default(lab.id, former.id)
        climate.manage("audit", "--repair")
        eventually(lambda: base.default_of(lab.id) == base.types()[name]["id"], "it is repaired")
        climate.end(lab.member, lease["id"])
        assert base.default_of(lab.id) == former.id
        assert base.volumes(name) == []
        check_over(climate, base, lab)
    finally:
        base.set_default(lab.id, None)
        base.cloud.block_storage.delete_type(former)


def test_the_end_hands_the_default_type_to_the_next_open_reservation(
    make_climate: MakeClimate, base: Base, lab: Project
) -> None:
    climate = make_climate()
    wanted = reservation_of(base, 1, match="open", on_end="keep")
    first, second = (climate.start_lease(lab.member, wanted) for _ in range(2))
    ids = {name: type_["id"] for name, type_ in base.types().items()}
    [one, two] = (ids[each["reservations"][0]["reserved_type"]] for each in (first, second))
    assert base.default_of(lab.id) == one
    lab.member.cloud.block_storage.create_volume(size=1)
    climate.end(lab.member, first["id"])
    assert [volume["size"] for volume in base.volumes()] == [1]
    assert base.default_of(lab.id) == two
    climate.end(lab.member, second["id"])
    assert base.default_of(lab.id) is None
    check_over(climate, base, lab)
