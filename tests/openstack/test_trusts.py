"""Trusts in a real Keystone: climate acts as a user until the trust is lost."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import session
from keystoneauth1.identity import v3
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from climate.core.errors import BackendUnavailable, Forbidden, Unauthenticated
from climate.plugins.base import Requester
from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.nova_servers import NovaServers
from climate.plugins.openstack.trusts import DeadTrust, Trusts
from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot as MakeServer
from tests.openstack.conftest import Deploy, MakeProject
from tests.support.process import eventually, write_config

NOW = datetime.now(UTC)


@pytest.fixture
def lab(project: MakeProject) -> Project:
    """Return a project for one test, which removes roles of its users."""
    return project("trusting")


@pytest.fixture
def trusts_of(administrator: Account, tmp_path: Path) -> Callable[..., Trusts]:
    """Return a function that creates Trusts with other options of [service_user]."""
    return lambda **options: Trusts(conf_of(administrator, tmp_path, **options))


def conf_of(administrator: Account, home: Path, **options: str) -> ConfigOpts:
    given = {f"service_user__{name}": value for name, value in options.items()}
    path = home / "trusts.conf"
    write_config(path, **{**settings.options(administrator, "blazar"), **given})
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    return conf


@pytest.fixture
def trusts(trusts_of: Callable[..., Trusts], lab: Project) -> Iterator[Trusts]:
    """Return Trusts; revoke those of the project at the end."""
    made = trusts_of()
    yield made
    for trust in made.find_all():
        if trust.project_id == lab.id:
            made.revoke(trust.id)


def requester(account: Account, token: str | None = None) -> Requester:
    return Requester(account.project_id, account.user_id, token or account.token)


def role_of(administrator: Account, account: Account) -> tuple[Any, str, Any]:
    identity = administrator.cloud.identity
    return account.project_id, account.user_id, identity.find_role(account.role)


def test_a_session_by_trust_acts_as_the_user_in_the_project(trusts: Trusts, lab: Project) -> None:
    trust_id = trusts.make(requester(lab.member), NOW)
    acting = trusts.session(trust_id)
    assert acting.get_user_id() == lab.member.user_id
    assert acting.get_project_id() == lab.id
    [found] = [trust for trust in trusts.find_all() if trust.project_id == lab.id]
    assert (found.id, found.user_id) == (trust_id, lab.member.user_id)


def test_a_revoked_trust_is_lost_and_can_be_revoked_again(trusts: Trusts, lab: Project) -> None:
    trust_id = trusts.make(requester(lab.member), NOW)
    trusts.revoke(trust_id)
    trusts.revoke(trust_id)
    with pytest.raises(DeadTrust):
        trusts.check(trust_id)


def test_a_trust_is_lost_while_the_user_lacks_the_role(
    trusts: Trusts, lab: Project, administrator: Account
) -> None:
    identity = administrator.cloud.identity
    trust_id = trusts.make(requester(lab.member), NOW)
    identity.unassign_project_role_from_user(*role_of(administrator, lab.member))
    with pytest.raises(DeadTrust, match="the user lost a role"):
        trusts.check(trust_id)
    identity.assign_project_role_to_user(*role_of(administrator, lab.member))
    trusts.check(trust_id)


@pytest.mark.parametrize("what", ["user", "project"])
def test_a_trust_is_lost_while_its_user_or_project_is_disabled(
    trusts: Trusts, lab: Project, administrator: Account, what: str
) -> None:
    identity = administrator.cloud.identity
    change = getattr(identity, f"update_{what}")
    id_ = lab.member.user_id if what == "user" else lab.id
    trust_id = trusts.make(requester(lab.member), NOW)
    change(id_, is_enabled=False)
    with pytest.raises(DeadTrust):
        trusts.check(trust_id)
    change(id_, is_enabled=True)
    trusts.check(trust_id)


def test_a_token_from_a_trust_cannot_create_a_trust(trusts: Trusts, lab: Project) -> None:
    token = trusts.session(trusts.make(requester(lab.member), NOW)).get_token()
    with pytest.raises(Forbidden, match="a token from a trust: send the request with a token of"):
        trusts.make(requester(lab.member, token), NOW)


def test_a_token_of_an_application_credential_cannot_create_a_trust(
    trusts: Trusts, lab: Project
) -> None:
    cloud = lab.member.cloud
    made = cloud.identity.create_application_credential(cloud.current_user_id, "automat")
    auth = v3.ApplicationCredential(
        cloud.session.auth.auth_url,
        application_credential_id=made.id,
        application_credential_secret=made.secret,
    )
    token = session.Session(auth=auth).get_token()
    with pytest.raises(Forbidden, match="with a token from an application credential"):
        trusts.make(requester(lab.member, token), NOW)


def test_an_expired_token_cannot_create_a_trust(trusts: Trusts, lab: Project) -> None:
    with pytest.raises(Unauthenticated):
        trusts.make(requester(lab.member, "gAAAAnotatoken"), NOW)


def test_wrong_service_credentials_do_not_mean_a_lost_trust(
    trusts: Trusts, trusts_of: Callable[..., Trusts], lab: Project
) -> None:
    trust_id = trusts.make(requester(lab.member), NOW)
    with pytest.raises(BackendUnavailable):
        trusts_of(password="wrong").check(trust_id)


def test_a_service_user_who_cannot_be_a_trustee_is_a_misconfiguration(
    trusts_of: Callable[..., Trusts],
) -> None:
    strange = trusts_of(auth_type="none")
    with pytest.raises(Misconfigured, match="does not support trusts"):
        strange.check("a")


def test_deletes_one_of_two_servers_with_the_same_number(
    trusts: Trusts, lab: Project, administrator: Account, tmp_path: Path, boot: MakeServer
) -> None:
    """A manager died, and Nova was so slow that the successor saw no server yet."""
    flavor, image = guests.smallest(lab.member.cloud)
    mark = {"climate:reservation": flavor, "climate:number": "1"}
    twins = {boot(lab.member, "twin", metadata=mark).id for _ in "ab"}
    asked = {"imageRef": image, "networks": "none", "name": "twin"}
    order = Boot(reservation_id=flavor, name="", amount=1, known=0, server=asked)
    nova = NovaServers(conf_of(administrator, tmp_path))
    [left] = nova.boot(trusts.make(requester(lab.member), NOW), order)
    [gone] = twins - {left}
    eventually(lambda: guests.is_gone(administrator.cloud, gone), "one is gone")
    assert not guests.is_gone(administrator.cloud, left)


def test_no_text_contains_the_token(lab: Project) -> None:
    assert lab.member.token not in repr(requester(lab.member))


def test_the_audit_revokes_a_trust_without_a_lease(
    deploy: Deploy, lab: Project, administrator: Account, tmp_path: Path
) -> None:
    climate = deploy("blazar", ())
    trusts = Trusts(climate.conf)
    yesterday = NOW - timedelta(days=1)
    orphan = trusts.make(requester(lab.member), yesterday)
    of_another = Trusts(conf_of(administrator, tmp_path)).make(requester(lab.member), yesterday)
    assert [line for line in climate.manage("audit") if lab.id in line]
    climate.manage("audit", "--repair")
    assert [line for line in climate.manage("audit") if lab.id in line] == []
    with pytest.raises(DeadTrust):
        trusts.check(orphan)
    trusts.check(of_another)
    trusts.revoke(of_another)
