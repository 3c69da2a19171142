"""Client for the tasks of climate's API: list them, and report their progress."""

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
    """The API did not answer, or answered with an error or no JSON. Retry."""


class ClaimLost(Exception):
    """The task is over, or another provisioner has its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """A node to prepare or to shut down (``noun``), or to power on again (state ``waking``)."""

    id: str
    node: str
    resource_id: str
    noun: str = PREPARATIONS
    state: str = "wanted"


class ClimateClient:
    """Client for the API whose root, without a version, is ``url``. Threads can share it."""

    def __init__(self, session: Session, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    def claimable(self, noun: str, wait: int = 0) -> Iterator[NodeTask]:
        """Yield the unclaimed tasks of the collection ``noun``, most urgent first.

        If there are none, wait up to ``wait`` seconds, if the API has capacity for long polling.
        Raises ApiUnavailable.
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
        """Report progress; return the task from the answer. Raises ClaimLost, ApiUnavailable."""
        return dict(self._request("POST", f"/v2/{task.noun}/{task.id}/report", values))

    def is_up(self, resource_id: str, since: datetime) -> bool:
        """Tell whether the cloud saw a host up at or after ``since``; raises as ``report`` does."""
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
