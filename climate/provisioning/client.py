"""Climate's API as a provisioner uses it: what is wanted, and what is said about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session

_TIMEOUT = 30.0
_LONGEST_REASON = 300


class NotAnswered(Exception):
    """Climate does not answer, or not what could be used: to be asked again."""


class Lost(Exception):
    """The preparation is over, or somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A node that is to be got ready."""

    id: str
    node: str
    resource_id: str


class Climate:
    """The API at ``url``, its root without a version. Threads may share it."""

    def __init__(self, session: Session, url: str) -> None:
        """Send nothing yet."""
        self._session = session
        self._url = url.rstrip("/")

    def claimable(self) -> Iterator[Wanted]:
        """Return what nobody is getting ready, the first needed first. Raises NotAnswered."""
        path: str | None = "/v2/preparations?claimable=true"
        while path:
            page = self._ask("GET", path)
            for one in page["preparations"]:
                yield Wanted(id=one["id"], node=one["node"], resource_id=one["resource_id"])
            # The link has the path that the service is mounted at, as our address has.
            path = page["next"] and f"/v2/{page['next'].partition('/v2/')[2]}"

    def report(self, id_: str, **said: Any) -> None:
        """Say something of a preparation. Raises Lost, NotAnswered."""
        self._ask("POST", f"/v2/preparations/{id_}/report", said)

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
            raise NotAnswered(str(error)) from None
        if response.status_code in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
            raise Lost(_told(response.text))
        if response.status_code != HTTPStatus.OK:
            raise NotAnswered(f"{response.status_code} {_told(response.text)}")
        try:
            return response.json()
        except ValueError:
            raise NotAnswered(f"{self._url} is no climate: {_told(response.text)}") from None


def _told(text: str) -> str:
    return text[:_LONGEST_REASON]
