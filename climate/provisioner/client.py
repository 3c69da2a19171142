"""Climate's API as a provisioner uses it: what is wanted, and what is said about it."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session

# What a node can be wanted for, as the API calls it.
PREPARATIONS, SHUTDOWNS = "preparations", "shutdowns"
LOG = logging.getLogger(__name__)

_TIMEOUT = 30.0
_LONGEST_REASON = 300


class ApiUnavailable(Exception):
    """Climate does not answer, or not what could be used: to be asked again."""


class ClaimLost(Exception):
    """What was wanted is over, or somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """A node that is to be got ready, or switched off: ``noun`` says which.

    A shutdown whose ``state`` is ``waking`` wants the node on again.
    """

    id: str
    node: str
    resource_id: str
    noun: str = PREPARATIONS
    state: str = "wanted"


class ClimateClient:
    """The API at ``url``, its root without a version. Threads may share it."""

    def __init__(self, session: Session, url: str) -> None:
        """Send nothing yet."""
        self._session = session
        self._url = url.rstrip("/")

    def claimable(self, noun: str, wait: int = 0) -> Iterator[NodeTask]:
        """Return what is wanted and nobody is at, the first needed first. Raises NotAnswered.

        If there is nothing, wait so many seconds for it, where there is room to wait.
        """
        page = self._first(noun, wait)
        while page:
            for one in page[noun]:
                names = {name: one[name] for name in ("id", "node", "resource_id", "state")}
                yield NodeTask(**names, noun=noun)
            # The link has the path that the service is mounted at, as our address has.
            following = page["next"]
            path = f"/v2/{following.partition('/v2/')[2]}" if following else None
            page = self._ask("GET", path) if path else None

    def _first(self, noun: str, wait: int) -> Any:  # noqa: ANN401 - a page
        path = f"/v2/{noun}?claimable=true"
        if wait:
            try:
                return self._ask("GET", f"{path}&wait={wait}")
            except ApiUnavailable as error:
                LOG.debug("climate is asked without waiting: %s", error)
        return self._ask("GET", path)

    def report(self, wanted: NodeTask, **said: Any) -> Mapping[str, Any]:
        """Say something of what is wanted; return how it stands. Raises Lost, NotAnswered."""
        answer = self._ask("POST", f"/v2/{wanted.noun}/{wanted.id}/report", said)
        return dict(answer)

    def is_up(self, resource_id: str, since: datetime) -> bool:
        """Tell whether the cloud has said after ``since`` that a host is up. Raises NotAnswered."""
        known = self._ask("GET", f"/v2/resources/{resource_id}/readiness")
        seen_at = known["seen_at"]
        return bool(known["up"]) and datetime.fromisoformat(seen_at) >= since

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
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
            raise ClaimLost(_told(response.text))
        if response.status_code != HTTPStatus.OK:
            raise ApiUnavailable(f"{response.status_code} {_told(response.text)}")
        try:
            return response.json()
        except ValueError:
            raise ApiUnavailable(f"{self._url} is no climate: {_told(response.text)}") from None


def _told(text: str) -> str:
    return text[:_LONGEST_REASON]
