"""The driver for stacks on Heat: a StackCloud.

climate's own user is an administrator, and can read, suspend, resume and delete the stacks of any
project. But if an administrator creates or updates a stack, the administrator owns the new objects.
Therefore climate previews and creates stacks with the requester's token, and updates stacks with
the trust of the lease.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from heatclient import exc as heat_errors
from heatclient.client import Client
from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.core.errors import BackendUnavailable, Conflict, InvalidInput
from climate.core.lease.model import Lease
from climate.plugins.base import QuotesRequest, Requester
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.neutron import Neutron
from climate.plugins.openstack.trusts import Trusts
from climate.plugins.stacks.cloud import MARK, Stack, tags
from climate.plugins.stacks.contents import Flavors
from climate.plugins.stacks.schema import stored
from climate.plugins.stacks.template import EMPTY, Source

_GONE = "DELETE_COMPLETE"
_PAGE = 500

# The placeholders for the project's id in a configured endpoint.
_PLACEHOLDERS = ("%(project_id)s", "%(tenant_id)s")


class HeatStacks:
    """The StackCloud for Heat, as the section ``[heat]`` configures it."""

    knows_users = True

    def __init__(self, conf: ConfigOpts) -> None:
        self._conf = conf
        self._session = openstack_session.make_session(conf)
        self._heat = openstack_session.adapter(conf, self._session, "heat")
        self._nova = openstack_session.adapter(conf, self._session, "nova")
        self._neutron = Neutron(conf, "floatingips")
        self._trusts = Trusts(conf)

    def flavors(self, requester: Requester) -> Flavors:
        flavors: dict[str, str] = {}
        with _answers("Nova"):
            endpoint = self._nova.get_endpoint() or ""
            session = openstack_session.token_session(self._conf, _token(requester), endpoint)
            while True:
                last = {"marker": list(flavors.values())[-1]} if flavors else {}
                answer = session.get(f"{endpoint}/flavors", params={"limit": _PAGE, **last})
                page = answer.json()["flavors"]
                if not page:
                    return Flavors(flavors)
                flavors.update({flavor["name"]: flavor["id"] for flavor in page})

    def networks(self, _requester: Requester, names: Collection[str]) -> Mapping[str, str]:
        if not names:
            return {}
        networks = self._neutron.fetch("networks", {"router:external": "True"})
        by_name = {network["name"]: network["id"] for network in networks}
        by_name |= {network["id"]: network["id"] for network in networks}
        return {name: by_name[name] for name in names if name in by_name}

    def preview(self, requester: Requester, source: Source) -> Sequence[Any]:
        heat = self._as_requester(requester)
        try:
            with _answers():
                name = f"climate-preview-{uuid.uuid4()}"
                preview = heat.stacks.preview(stack_name=name, **stored(source))
                resources: list[Any] = preview.to_dict()["resources"]
                return resources
        except BackendUnavailable as error:
            raise _stack_error(error) from None

    def source(self, requester: Requester, stack_id: str) -> Source:
        try:
            return _source(self._as_requester(requester), stack_id)
        except BackendUnavailable as error:
            if isinstance(error.__cause__, heat_errors.NotFound):
                raise InvalidInput(f"Stack {stack_id} could not be found") from None
            raise _stack_error(error) from None

    def current(self, stack: Stack) -> Source:
        return _source(self._as_climate(stack.project_id), _path(stack))

    def make_empty(self, requester: Requester, name: str, reservation_id: str) -> Stack:
        if present := self.find_marked(requester.project_id, reservation_id):
            return present
        heat = self._as_requester(requester)
        marks = ",".join(tags(reservation_id))
        try:
            with _answers():
                answer = heat.stacks.create(stack_name=name, template=EMPTY, tags=marks)
        except BackendUnavailable as error:
            if isinstance(error.__cause__, heat_errors.Conflict):
                raise Conflict(
                    f"The project already has a stack named {name}: choose another stack_name"
                ) from None
            raise _stack_error(error) from None
        return Stack(
            id=answer["stack"]["id"],
            name=name,
            project_id=requester.project_id,
            status="CREATE_IN_PROGRESS",
            tags=tags(reservation_id),
        )

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        with _answers(), suppress(heat_errors.NotFound):
            record = self._as_climate(project_id).stacks.get(stack_id, resolve_outputs=False)
            stack = _stack(record.to_dict(), project_id)
            return None if stack.status == _GONE else stack
        return None

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        tag = tags(reservation_id)[-1]
        with _answers():
            records = self._as_climate(project_id).stacks.list(filters={"tags": tag})
            return next((_stack(each.to_dict(), project_id) for each in records), None)

    def update(self, lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        assert lease.trust_id is not None  # noqa: S101 - acts_as_user requires it
        heat = self._client(self._trusts.session(lease.trust_id), lease.project_id)
        with _answers():
            heat.stacks.update(_path(stack), tags=",".join(tags), **stored(source))

    def resume(self, stack: Stack) -> None:
        with _answers():
            self._as_climate(stack.project_id).actions.resume(_path(stack))

    def suspend(self, stack: Stack) -> None:
        with _answers():
            self._as_climate(stack.project_id).actions.suspend(_path(stack))

    def delete(self, stack: Stack) -> None:
        with _answers(), suppress(heat_errors.NotFound):
            self._as_climate(stack.project_id).stacks.delete(_path(stack))

    def marked(self) -> Sequence[Stack]:
        """Return the stacks of all projects that are marked with a reservation.

        If Heat does not let climate list the stacks of all projects at once, send one request per
        project.
        """
        with _answers():
            try:
                heat = self._as_climate(self._session.get_project_id() or "")
                return list(_marked(heat, global_tenant="true"))
            except heat_errors.Forbidden:
                return [
                    stack
                    for id_ in self._projects()
                    for stack in _marked(self._as_climate(id_), project=id_)
                ]

    def _projects(self) -> list[str]:
        keystone = openstack_session.keystone(self._session)
        projects = keystone.get("/projects", params={"enabled": "true"}).json()["projects"]
        return [project["id"] for project in projects]

    def _as_climate(self, project_id: str) -> Any:  # noqa: ANN401 - heatclient's
        """Return a Heat client that acts as climate's own user at the endpoint of a project."""
        return self._client(self._session, project_id)

    def _as_requester(self, requester: Requester) -> Any:  # noqa: ANN401 - as above
        token = _token(requester)
        with _answers():
            endpoint = self._endpoint(requester.project_id)
        return _client(openstack_session.token_session(self._conf, token, endpoint), endpoint)

    def _client(self, session: Session, project_id: str) -> Any:  # noqa: ANN401 - as above
        with _answers():
            return _client(session, self._endpoint(project_id))

    def _endpoint(self, project_id: str) -> str:
        """Return the URL of Heat's API for a project.

        Keystone's catalog contains this URL for climate's own project. The option
        ``endpoint_override`` may contain a placeholder such as ``%(project_id)s``. In both cases,
        this method puts ``project_id`` in the place of the URL's last segment.
        """
        address = (self._heat.get_endpoint() or "").rstrip("/")
        for end in (self._session.get_project_id(), *_PLACEHOLDERS):
            address = address.removesuffix(f"/{end}")
        return f"{address}/{project_id}"


def _client(session: Session, endpoint: str) -> Any:  # noqa: ANN401 - as above
    return Client("1", session=session, endpoint_override=endpoint)


def _token(requester: Requester) -> str:
    if requester.token is None:
        raise Conflict(
            "Stacks need the Keystone token of your request, which climate has only if"
            " [api] auth_strategy is keystone"
        )
    return requester.token


def _marked(heat: Any, project: str | None = None, **query: str) -> Iterator[Stack]:  # noqa: ANN401
    for stack in heat.stacks.list(filters={"tags": MARK, **query}):
        record = stack.to_dict()
        yield _stack(record, project or record["project"])


def _source(heat: Any, stack_id: str) -> Source:  # noqa: ANN401 - heatclient's
    with _answers():
        template = heat.stacks.template(stack_id)
        environment = dict(heat.stacks.environment(stack_id))
        files = heat.stacks.files(stack_id)
    parameters = environment.pop("parameters", {})
    return Source(template, files, parameters, environment).normal


def _path(stack: Stack) -> str:
    return f"{stack.name}/{stack.id}"


def _stack(record: Mapping[str, Any], project_id: str) -> Stack:
    return Stack(
        id=record["id"],
        name=record["stack_name"],
        project_id=project_id,
        status=record["stack_status"],
        reason=record["stack_status_reason"],
        tags=record.get("tags") or (),
        created_at=_moment(record["creation_time"]),
        updated_at=_moment(record["updated_time"]) if record.get("updated_time") else None,
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _stack_error(error: BackendUnavailable) -> BackendUnavailable | InvalidInput:
    """Return InvalidInput if the user's request caused Heat's error; otherwise ``error``.

    Heat's message may quote values of the template.
    """
    cause = error.__cause__
    if isinstance(cause, heat_errors.HTTPException) and str(cause.code) in {"400", "403", "404"}:
        return QuotesRequest(f"Heat rejected the stack: {str(cause).removeprefix('ERROR: ')}")
    return error


@contextmanager
def _answers(service: str = "Heat") -> Iterator[None]:
    """Context manager: convert a client's errors to BackendUnavailable.

    The message has the name ``service``, and the text of the error.
    """
    try:
        yield
    except (ClientException, heat_errors.BaseException) as error:
        raise BackendUnavailable(f"the request to {service} failed: {error}") from error
