"""Stacks of Heat.

An administrator may read, suspend, resume and delete the stacks of any project, by the address of
that project's; what is made or changed there would be the administrator's own, though. So stacks
are previewed and made with the asker's token, and changed by a trust.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from heatclient import exc as refusals
from heatclient.client import Client
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.plugin import AUTH_INTERFACE
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.core.errors import BackendUnavailable, Conflict, InvalidInput
from climate.core.lease.model import Lease
from climate.plugins.base import Asker
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.neutron import Neutron
from climate.plugins.openstack.trusts import Trusts
from climate.plugins.stacks.cloud import MARK, Stack, tags
from climate.plugins.stacks.contents import Flavors
from climate.plugins.stacks.schema import SOURCE
from climate.plugins.stacks.template import Source

_EMPTY = {"heat_template_version": "2016-10-14"}
_GONE = "DELETE_COMPLETE"
_PAGE = 500

# What keystoneauth fills with the id of the project, in addresses that are configured.
_PLACES = ("%(project_id)s", "%(tenant_id)s")


class HeatStacks:
    """The StackCloud of ``[heat]``."""

    knows_users = True

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare the clients; nothing is sent yet. Raises Misconfigured."""
        self._conf = conf
        self._session = openstack_session.make_session(conf)
        self._heat = openstack_session.adapter(conf, self._session, "heat")
        self._nova = openstack_session.adapter(conf, self._session, "nova")
        self._neutron = Neutron(conf, "floatingips")
        self._trusts = Trusts(conf)

    def flavors(self, asker: Asker) -> Flavors:
        """Return the flavors that the asker may use."""
        found: dict[str, str] = {}
        with _answers("Nova"):
            endpoint = self._nova.get_endpoint() or ""
            session = openstack_session.session_of(self._conf, _token(asker), endpoint)
            page = [None]
            while page:
                page = _page(session, endpoint, found)
        return Flavors(found)

    def networks(self, _asker: Asker, names: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the external networks that have these names or ids."""
        if not names:
            return {}
        found = self._neutron.fetch("networks", {"router:external": "True"})
        by_name = {one["name"]: one["id"] for one in found}
        by_name |= {one["id"]: one["id"] for one in found}
        return {name: by_name[name] for name in names if name in by_name}

    def preview(self, asker: Asker, source: Source) -> Sequence[Any]:
        """Return what Heat says that a stack would consist of."""
        heat = self._as_asker(asker)
        try:
            with _answers():
                name = f"climate-preview-{uuid.uuid4()}"
                shown = heat.stacks.preview(stack_name=name, **_sent(source))
                resources: list[Any] = shown.to_dict()["resources"]
                return resources
        except BackendUnavailable as error:
            raise _refused(error) from None

    def source(self, asker: Asker, stack_id: str) -> Source:
        """Return what Heat has of a stack of the asker's project."""
        heat = self._as_asker(asker)
        try:
            with _answers():
                template = heat.stacks.template(stack_id)
                environment = dict(heat.stacks.environment(stack_id))
                files = heat.stacks.files(stack_id)
        except BackendUnavailable as error:
            if isinstance(error.__cause__, refusals.NotFound):
                raise InvalidInput(f"Stack {stack_id} could not be found") from None
            raise _refused(error) from None
        parameters = environment.pop("parameters", {})
        kept = {"resource_registry", "parameter_defaults"} & environment.keys()
        return Source(template, files, parameters, {name: environment[name] for name in kept})

    def make_empty(self, asker: Asker, name: str, reservation_id: str) -> Stack:
        """Have Heat make a stack that has nothing."""
        if present := self.find_marked(asker.project_id, reservation_id):
            return present
        heat = self._as_asker(asker)
        marks = ",".join(tags(reservation_id))
        try:
            with _answers():
                made = heat.stacks.create(stack_name=name, template=_EMPTY, tags=marks)
        except BackendUnavailable as error:
            if isinstance(error.__cause__, refusals.Conflict):
                raise Conflict(f"The project has a stack of the name {name} already") from None
            raise _refused(error) from None
        return Stack(
            id=made["stack"]["id"],
            name=name,
            project_id=asker.project_id,
            status="CREATE_IN_PROGRESS",
            tags=tags(reservation_id),
        )

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        """Return a stack as it is now."""
        with _answers(), suppress(refusals.NotFound):
            found = self._ours(project_id).stacks.get(stack_id, resolve_outputs=False)
            stack = _stack(found.to_dict(), project_id)
            return None if stack.status == _GONE else stack
        return None

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        """Return the stack with the tag of a reservation."""
        wanted = tags(reservation_id)[-1]
        with _answers():
            found = self._ours(project_id).stacks.list(filters={"tags": wanted})
            return next((_stack(one.to_dict(), project_id) for one in found), None)

    def update(self, lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        """Have Heat begin to change it, as its owner."""
        assert lease.trust_id is not None  # noqa: S101 - acts_as_user said so
        heat = self._client(self._trusts.session(lease.trust_id), lease.project_id)
        with _answers():
            heat.stacks.update(_path(stack), tags=",".join(tags), **_sent(source))

    def resume(self, stack: Stack) -> None:
        """Have Heat begin to resume it."""
        with _answers():
            self._ours(stack.project_id).actions.resume(_path(stack))

    def suspend(self, stack: Stack) -> None:
        """Have Heat begin to suspend it."""
        with _answers():
            self._ours(stack.project_id).actions.suspend(_path(stack))

    def delete(self, stack: Stack) -> None:
        """Have Heat begin to delete it."""
        with _answers(), suppress(refusals.NotFound):
            self._ours(stack.project_id).stacks.delete(_path(stack))

    def marked(self) -> Sequence[Stack]:
        """Return all with our tag; unless Heat lets us see all at once, project by project."""
        with _answers():
            try:
                ours = self._ours(self._session.get_project_id() or "")
                return list(_marked(ours, global_tenant="true"))
            except refusals.Forbidden:
                projects = self._projects()
                return [one for id_ in projects for one in _marked(self._ours(id_), project=id_)]

    def _projects(self) -> list[str]:
        keystone = Adapter(
            self._session,
            service_type="identity",
            interface=AUTH_INTERFACE,  # type: ignore[arg-type]  # one that is no text
            version="3",
        )
        found = keystone.get("/projects", params={"enabled": "true"}).json()["projects"]
        return [one["id"] for one in found]

    def _ours(self, project_id: str) -> Any:  # noqa: ANN401 - heatclient's
        """Return Heat as we see it at a project's address."""
        return self._client(self._session, project_id)

    def _as_asker(self, asker: Asker) -> Any:  # noqa: ANN401 - as above
        token = _token(asker)
        with _answers():
            endpoint = self._endpoint(asker.project_id)
        return _client(openstack_session.session_of(self._conf, token, endpoint), endpoint)

    def _client(self, session: Session, project_id: str) -> Any:  # noqa: ANN401 - as above
        with _answers():
            return _client(session, self._endpoint(project_id))

    def _endpoint(self, project_id: str) -> str:
        """Return the address of Heat for a project.

        The catalog has that of our own, ``endpoint_override`` perhaps a place for any.
        """
        address = (self._heat.get_endpoint() or "").rstrip("/")
        for end in (self._session.get_project_id(), *_PLACES):
            address = address.removesuffix(f"/{end}")
        return f"{address}/{project_id}"


def _client(session: Session, endpoint: str) -> Any:  # noqa: ANN401 - as above
    return Client("1", session=session, endpoint_override=endpoint)


def _token(asker: Asker) -> str:
    if asker.token is None:
        raise Conflict(
            "Stacks of Heat are looked up with your own token of Keystone's: it is to be had where"
            " [api] auth_strategy is keystone"
        )
    return asker.token


def _page(session: Session, endpoint: str, found: dict[str, str]) -> list[Any]:
    """Add a page of flavors to those found, and return it."""
    last = {"marker": list(found.values())[-1]} if found else {}
    answer = session.get(f"{endpoint}/flavors", params={"limit": _PAGE, **last})
    page: list[Any] = answer.json()["flavors"]
    found.update({one["name"]: one["id"] for one in page})
    return page


def _marked(heat: Any, project: str | None = None, **query: str) -> Iterator[Stack]:  # noqa: ANN401
    for one in heat.stacks.list(filters={"tags": MARK, **query}):
        found = one.to_dict()
        yield _stack(found, project or found["project"])


def _sent(source: Source) -> dict[str, Any]:
    return {name: getattr(source, name) for name in SOURCE}


def _path(stack: Stack) -> str:
    return f"{stack.name}/{stack.id}"


def _stack(found: Mapping[str, Any], project_id: str) -> Stack:
    return Stack(
        id=found["id"],
        name=found["stack_name"],
        project_id=project_id,
        status=found["stack_status"],
        reason=found["stack_status_reason"],
        tags=found.get("tags") or (),
        created_at=datetime.fromisoformat(found["creation_time"]).astimezone(UTC),
    )


def _refused(error: BackendUnavailable) -> BackendUnavailable | InvalidInput:
    """Return what a refusal of Heat's is: the fault of what was asked, or another."""
    cause = error.__cause__
    if isinstance(cause, refusals.HTTPException) and str(cause.code) in {"400", "403", "404"}:
        return InvalidInput(f"Heat says of the stack: {str(cause).removeprefix('ERROR: ')}")
    return error


@contextmanager
def _answers(service: str = "Heat") -> Iterator[None]:
    """Turn what clients raise, but NotFound where that is awaited, into who did not do what."""
    try:
        yield
    except (ClientException, refusals.BaseException) as error:
        raise BackendUnavailable(f"{service} does not do it: {error}") from error
