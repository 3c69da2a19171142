"""Neutron, and how what we make there is told from what others have.

Which reservation something is of is in its description from the moment that it is there, and in its
tags a request later: owners find theirs by these. Owners can change both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.core.errors import BackendUnavailable
from climate.plugins.openstack import session

MARK = "climate"
# Blazar's tags: whoever looks for their addresses by these finds them here.
_BLAZAR = "blazar"
_RESERVATION = "reservation:"
_DESCRIPTION = f"climate {_RESERVATION}"
# So many values fit into one URL.
_CHUNK = 100
_REFUSED, GONE = 400, 404


class Neutron:
    """The Neutron of ``[neutron]``, as those see it who make ``things`` (``floatingips``)."""

    def __init__(self, conf: ConfigOpts, things: str) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self._adapter: Adapter = session.adapter(conf, session.make_session(conf), "neutron")
        self._things, self._thing = things, things.removesuffix("s")

    def find(self, **query: Any) -> list[dict[str, Any]]:
        """Return the things for which each of ``query`` holds; of several values any does."""
        return self.fetch(self._things, query)

    def tagged(self, reservation_id: str) -> list[dict[str, Any]]:
        """Return the things that were made for a reservation, not those that only have its tag.

        Owners may tag what else they have for it.
        """
        mark = f"{_DESCRIPTION}{reservation_id}"
        found = self.find(tags=f"{_RESERVATION}{reservation_id}")
        return [one for one in found if (one.get("description") or "").endswith(mark)]

    def make(self, reservation_id: str, wanted: Mapping[str, Any], description: str = "") -> str:
        """Make a thing whose description names the reservation; return its id."""
        text = f"{description} {_DESCRIPTION}{reservation_id}".strip()
        answer = self.send("POST", self._things, {self._thing: {**wanted, "description": text}})
        return str(answer.json()[self._thing]["id"])

    def change(self, id_: str, **values: Any) -> None:
        """Change a thing; fine if it is gone."""
        self.send("PUT", f"{self._things}/{id_}", {self._thing: values}, missing=True)

    def delete(self, id_: str) -> None:
        """Delete a thing; fine if it is gone."""
        self.send("DELETE", f"{self._things}/{id_}", missing=True)

    def mark(self, id_: str, reservation_id: str) -> None:
        """Put the tags on a thing that it lacks; those of its owner stay."""
        path = f"{self._things}/{id_}/tags"
        before = self.send("GET", path).json()["tags"]
        wanted = {*before, _BLAZAR, MARK, f"{_RESERVATION}{reservation_id}"}
        self.send("PUT", path, {"tags": sorted(wanted)})

    def unmark(self, id_: str) -> None:
        """Remove our tags from a thing, and then what its description says; fine if it is gone."""
        answer = self.send("GET", f"{self._things}/{id_}", missing=True)
        if answer.status_code == GONE:
            return
        found = answer.json()[self._thing]
        theirs = [tag for tag in found["tags"] if not _is_ours(tag)]
        if theirs != found["tags"]:
            self.send("PUT", f"{self._things}/{id_}/tags", {"tags": theirs}, missing=True)
        text, mark, _ = found["description"].partition(_DESCRIPTION)
        if mark:
            self.change(id_, description=text.strip())

    def chunks(self, what: str, name: str, values: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield what has one of ``values``."""
        for at in range(0, len(values), _CHUNK):
            yield from self.fetch(what, {name: values[at : at + _CHUNK]})

    def fetch(self, what: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what there is of a kind."""
        return list(self.send("GET", what, params=query).json()[what])

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        missing: bool = False,
    ) -> Response:
        """Return Neutron's answer; raises BackendUnavailable with its own words if it refuses.

        With ``missing``, what is not there is no refusal.
        """
        sent = {} if body is None else {"json": body}
        with session.answers("Neutron"):
            answer = self._adapter.request(
                f"/v2.0/{path}", method, params=params, raise_exc=False, **sent
            )
        if answer.status_code < _REFUSED or (missing and answer.status_code == GONE):
            return answer
        raise BackendUnavailable(f"Neutron does not do it: {_reason(answer)}")


def marks(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return which reservation a thing is of, and whether its tags say so."""
    tags: Iterable[str] = found.get("tags", ())
    named = [tag.removeprefix(_RESERVATION) for tag in tags if tag.startswith(_RESERVATION)]
    described = (found.get("description") or "").partition(_DESCRIPTION)[2]
    names = [*named, *([described] if described else [])]
    return {
        "reservation_id": names[0] if names else None,
        "is_marked": MARK in tags and bool(named),
    }


def _is_ours(tag: str) -> bool:
    return tag in {_BLAZAR, MARK} or tag.startswith(_RESERVATION)


def _reason(answer: Response) -> str:
    """Return what an answer says in words, or else its status."""
    try:
        return str(answer.json()["NeutronError"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason}"
