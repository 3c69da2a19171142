"""Accounts for tests: the cloud's administrator, and temporary projects with users."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import openstack
from openstack.connection import Connection
from openstack.identity.v3.project import Project as KeystoneProject

ROLES = ("reader", "member", "admin")

# What the testbed says in its openrc.
_TESTBED = {
    "OS_AUTH_URL": "http://127.0.0.1:5000/v3",
    "OS_USERNAME": "admin",
    "OS_PASSWORD": "secret",
    "OS_PROJECT_NAME": "admin",
    "OS_USER_DOMAIN_ID": "default",
    "OS_PROJECT_DOMAIN_ID": "default",
    "OS_REGION_NAME": "RegionOne",
}


@dataclass(frozen=True)
class Account:
    """A user in a project: by SDK, by token, and by environment for commands."""

    environment: dict[str, str]
    role: str

    @classmethod
    def of_admin(cls) -> Self:
        """Return the administrator that OS_* variables name, or else the testbed's."""
        given = {name: value for name, value in os.environ.items() if name.startswith("OS_")}
        named = "OS_CLOUD" in given or "OS_AUTH_URL" in given
        return cls(given if named else _TESTBED, "admin")

    @cached_property
    def cloud(self) -> Connection:
        """The cloud as this user sees it."""
        if "OS_CLOUD" in self.environment:
            return openstack.connect()
        options = {key[3:].lower(): value for key, value in self.environment.items()}
        options.pop("identity_api_version", None)
        return openstack.connect(load_envvars=False, load_yaml_config=False, **options)

    @property
    def token(self) -> str:
        """A token scoped to the project; the session renews it."""
        return str(self.cloud.session.get_token())

    @property
    def project_id(self) -> str:
        return str(self.cloud.session.get_project_id())

    @property
    def user_id(self) -> str:
        return str(self.cloud.session.get_user_id())


@dataclass(frozen=True)
class Project:
    """A project with one user per role."""

    id: str
    name: str
    reader: Account
    member: Account
    admin: Account


@contextmanager
def temporary_project(admin: Account, name: str) -> Iterator[Project]:
    """Create a project with its users; delete them at the end."""
    identity = admin.cloud.identity
    unique = f"climate-{name}-{uuid.uuid4().hex[:6]}"
    domain = admin.cloud.session.auth.get_access(admin.cloud.session).project_domain_id
    project = identity.create_project(name=unique, domain_id=domain)
    users = []
    try:
        accounts = {}
        for role in ROLES:
            user = identity.create_user(
                name=f"{unique}-{role}", password=unique, domain_id=project.domain_id
            )
            users.append(user)
            identity.assign_project_role_to_user(project, user, identity.find_role(role))
            accounts[role] = _account(admin, project, user.name, role)
        yield Project(project.id, unique, **accounts)
    finally:
        for user in users:
            identity.delete_user(user)
        identity.delete_project(project)


def _account(admin: Account, project: KeystoneProject, user: str, role: str) -> Account:
    auth = admin.cloud.session.auth.auth_url
    region = admin.cloud.config.get_region_name()
    return Account(
        {
            "OS_AUTH_URL": auth,
            "OS_USERNAME": user,
            "OS_PASSWORD": project.name,
            "OS_PROJECT_NAME": project.name,
            "OS_USER_DOMAIN_ID": project.domain_id,
            "OS_PROJECT_DOMAIN_ID": project.domain_id,
            "OS_IDENTITY_API_VERSION": "3",
            **({"OS_REGION_NAME": region} if region else {}),
        },
        role,
    )
