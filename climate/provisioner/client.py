"""Client for climate's API: lists the tasks of provisioners, and reports their progress."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session

# The kinds of tasks, and their collections in the API.
PREPARATIONS, SHUTDOWNS = "preparations", "shutdowns"
LOG = logging.getLogger(__name__)

_TIMEOUT = 30.0
_LONGEST_REASON = 300


class ApiUnavailable(Exception):
    """Raised if the API does not answer, or answers with an error or without JSON. Retry later."""


class ClaimLost(Exception):
    """Raised if the task is over, or another provisioner has claimed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """A task of this provisioner on a node (host).

    ``noun`` is the kind of the task: ``preparations`` or ``shutdowns``. A shutdown in the state
    ``waking`` means that the node must be powered on again.
    """

    id: str
    node: str
    resource_id: str
    noun: str = PREPARATIONS
    state: str = "wanted"


class ClimateClient:
    """A client for climate's API. Thread-safe. ``url`` is the API's root, without a version."""

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    def claimable(self, noun: str, wait: int = 0) -> Iterator[NodeTask]:
        """Yield the tasks of the kind ``noun`` that can be claimed, the most urgent first.

        If there are none, the request waits up to ``wait`` seconds for one (long polling). If
        climate refuses to wait, for instance because too many requests are waiting, repeat the
        request without waiting. Raises ApiUnavailable if that fails, too.
        """
        page = self._first(noun, wait)
        while page:
            for record in page[noun]:
                values = {name: record[name] for name in ("id", "node", "resource_id", "state")}
                yield NodeTask(**values, noun=noun)
            # The link contains the mount path of the service, and so does the root URL.
            link = page["next"]
            page = link and self._request("GET", f"/v2/{link.partition('/v2/')[2]}")

    def _first(self, noun: str, wait: int) -> Any:  # noqa: ANN401 - a page
        path = f"/v2/{noun}?claimable=true"
        if wait:
            try:
                return self._request("GET", f"{path}&wait={wait}")
            except ApiUnavailable as error:
                LOG.debug("no long polling, because climate refused it: %s", error)
        return self._request("GET", path)

    def report(self, task: NodeTask, **values: Any) -> Mapping[str, Any]:
        """Report the progress of a task, such as ``state="ready"``.

        Return the task as climate stores it. Raises ClaimLost if the task is over or another
        provisioner has claimed it, and ApiUnavailable if climate does not answer.
        """
        return dict(self._request("POST", f"/v2/{task.noun}/{task.id}/report", values))

    def is_up(self, resource_id: str, since: datetime) -> bool:
        """Return whether the cloud reported a host as up at or after ``since``.

        Raises ClaimLost if climate does not know the host any more, and ApiUnavailable if climate
        does not answer.
        """
        readiness = self._request("GET", f"/v2/resources/{resource_id}/readiness")
        seen_at = readiness["seen_at"]
        return bool(readiness["up"]) and datetime.fromisoformat(seen_at) >= since

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        try:
            response = self._session.request(
                f"{self._url}{path}",
                method,
                json=body,
                raise_exc=False,
                timeout=_TIMEOUT,
                headers={"Accept": "application/json"},
            )
        except ClientException as error:
            raise ApiUnavailable(str(error)) from None
        if response.status_code in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
            raise ClaimLost(_shortened(response.text))
        if response.status_code != HTTPStatus.OK:
            raise ApiUnavailable(f"{response.status_code} {_shortened(response.text)}")
        try:
            return response.json()
        except ValueError:
            raise ApiUnavailable(
                f"{self._url} is not climate's API: {_shortened(response.text)}"
            ) from None


def _shortened(text: str) -> str:
    return text[:_LONGEST_REASON]
