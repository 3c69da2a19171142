"""Cinder, as its administrators see it, or the user of a lease; and the servers that have volumes.

Whatever is listed is listed whole, and by name once more: a Cinder that does not know a filter
would answer with the volumes of others.
"""

from collections.abc import Mapping
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.core.errors import BackendUnavailable
from climate.plugins import openstack

# The oldest that filters pools by volume type, deletes by force with all snapshots, and deletes
# attachments: OpenStack Queens has it.
_VERSION = "3.44"
_REFUSED, GONE, CONFLICT = 400, 404, 409
_PAGE = 500


class Cinder:
    """The Cinder of ``[cinder]``, for whoever a session is of."""

    def __init__(self, conf: ConfigOpts, session: Session) -> None:
        """Prepare the client; nothing is sent yet."""
        self._adapter: Adapter = openstack.adapter(conf, session, "cinder", _VERSION)

    def fetch(self, what: str, key: str, **query: Any) -> list[dict[str, Any]]:
        """Return all there is of a kind, page by page, that the answers have under ``key``."""
        found: list[dict[str, Any]] = []
        while True:
            marker = {"marker": found[-1]["id"]} if found else {}
            answer = self.send("GET", what, params={**query, "limit": _PAGE, **marker})
            page = answer.json()[key]
            found += page
            if len(page) < _PAGE:
                return found

    def act(self, path: str, action: str, fine: int | None = None, **values: Any) -> None:
        """Have something done to what is at ``path``; ``fine`` is a status that is no refusal."""
        self.send("POST", f"{path}/action", {action: values}, fine=(GONE, fine or GONE))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        fine: tuple[int, ...] = (),
    ) -> Response:
        """Return Cinder's answer; raises BackendUnavailable with its own words if it refuses.

        Statuses that are ``fine`` are no refusals.
        """
        sent = {} if body is None else {"json": body}
        with openstack.answers("Cinder"):
            answer = self._adapter.request(
                f"/{path}", method, params=params, raise_exc=False, **sent
            )
        if answer.status_code < _REFUSED or answer.status_code in fine:
            return answer
        raise BackendUnavailable(f"Cinder does not do it: {_reason(answer)}")


def _reason(answer: Response) -> str:
    """Return what an answer says in words, or else its status."""
    try:
        [fault] = answer.json().values()
        return str(fault["message"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"{answer.status_code} {answer.reason}"
