"""Neutron client, and the marks on the objects that climate creates there.

The description of an object names its reservation from the start; the tags, by which owners find
it, follow in a second request. Owners can change both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.core.errors import BackendUnavailable
from climate.plugins.openstack import session

MARK = "climate"
# Blazar's tags, for users who look for their addresses by these.
_BLAZAR = "blazar"
_RESERVATION = "reservation:"
_DESCRIPTION = f"climate {_RESERVATION}"
# Number of values that fit into one URL.
_CHUNK = 100
_REFUSED, GONE = 400, 404


class Neutron:
    """The Neutron of ``[neutron]``, for one collection, such as ``floatingips``."""

    def __init__(self, conf: ConfigOpts, collection: str) -> None:
        """Create the client, without sending a request. Raises Misconfigured."""
        self._adapter: Adapter = session.adapter(conf, session.make_session(conf), "neutron")
        self._collection, self._noun = collection, collection.removesuffix("s")

    def find(self, **query: Any) -> list[dict[str, Any]]:
        """Return the objects that match every parameter of ``query``, by any of its values."""
        return self.fetch(self._collection, query)

    def tagged(self, reservation_id: str) -> list[dict[str, Any]]:
        """Return the objects that climate created for a reservation.

        Owners may put its tag on other objects, so the description must match, too.
        """
        mark = f"{_DESCRIPTION}{reservation_id}"
        objects = self.find(tags=f"{_RESERVATION}{reservation_id}")
        return [each for each in objects if (each.get("description") or "").endswith(mark)]

    def create(self, reservation_id: str, values: Mapping[str, Any], description: str = "") -> str:
        """Create an object whose description names the reservation; return its id."""
        text = f"{description} {_DESCRIPTION}{reservation_id}".strip()
        answer = self.send("POST", self._collection, {self._noun: {**values, "description": text}})
        return str(answer.json()[self._noun]["id"])

    def change(self, id_: str, **values: Any) -> None:
        """Change an object; succeeds if it is gone."""
        self.send("PUT", f"{self._collection}/{id_}", {self._noun: values}, missing=True)

    def delete(self, id_: str) -> None:
        """Delete an object; succeeds if it is gone."""
        self.send("DELETE", f"{self._collection}/{id_}", missing=True)

    def mark(self, id_: str, reservation_id: str) -> None:
        """Add climate's tags to an object; its owner's tags stay."""
        path = f"{self._collection}/{id_}/tags"
        before = self.send("GET", path).json()["tags"]
        tags = {*before, _BLAZAR, MARK, f"{_RESERVATION}{reservation_id}"}
        self.send("PUT", path, {"tags": sorted(tags)})

    def unmark(self, id_: str) -> None:
        """Remove climate's tags, then its part of the description; succeeds if it is gone."""
        answer = self.send("GET", f"{self._collection}/{id_}", missing=True)
        if answer.status_code == GONE:
            return
        record = answer.json()[self._noun]
        others = [tag for tag in record["tags"] if not _is_climates(tag)]
        if others != record["tags"]:
            self.send("PUT", f"{self._collection}/{id_}/tags", {"tags": others}, missing=True)
        text, mark, _ = record["description"].partition(_DESCRIPTION)
        if mark:
            self.change(id_, description=text.strip())

    def fetch_any(
        self, collection: str, name: str, values: Sequence[Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the objects of a collection whose field ``name`` has any of ``values``."""
        for start in range(0, len(values), _CHUNK):
            yield from self.fetch(collection, {name: values[start : start + _CHUNK]})

    def fetch(self, collection: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the objects of a collection that match ``query``."""
        return list(self.send("GET", collection, params=query).json()[collection])

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        missing: bool = False,
    ) -> Response:
        """Send a request. Raises BackendUnavailable with Neutron's reason.

        With ``missing``, status 404 is not an error.
        """
        content = {} if body is None else {"json": body}
        with session.answers("Neutron"):
            answer = self._adapter.request(
                f"/v2.0/{path}", method, params=params, raise_exc=False, **content
            )
        if answer.status_code < _REFUSED or (missing and answer.status_code == GONE):
            return answer
        raise BackendUnavailable(f"Neutron rejected the request: {_reason(answer)}")


def marks(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reservation of an object, and whether its tags name it."""
    tags: Iterable[str] = record.get("tags", ())
    tagged = [tag.removeprefix(_RESERVATION) for tag in tags if tag.startswith(_RESERVATION)]
    described = (record.get("description") or "").partition(_DESCRIPTION)[2]
    names = [*tagged, *([described] if described else [])]
    return {
        "reservation_id": names[0] if names else None,
        "is_marked": MARK in tags and bool(tagged),
    }


def _is_climates(tag: str) -> bool:
    return tag in {_BLAZAR, MARK} or tag.startswith(_RESERVATION)


def _reason(answer: Response) -> str:
    """Return the message of an answer, or else its status."""
    try:
        return str(answer.json()["NeutronError"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason}"
