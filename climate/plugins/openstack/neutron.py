"""A Neutron client. Each object that climate creates gets marks with the id of its reservation.

The marks are tags, and a part of the object's description. The request that creates an object sets
the description. A second request sets the tags, by which the owners of objects can search. Owners
can change tags and description.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts
from requests import Response

from climate.plugins.openstack import session

MARK = "climate"
# Tags that Blazar sets too, for users that search their addresses by these.
_BLAZAR = "blazar"
_RESERVATION = "reservation:"
_DESCRIPTION = f"climate {_RESERVATION}"
# Limits the number of values in one URL.
_CHUNK = 100
GONE = 404


class Neutron:
    """A client for Neutron, as the section ``[neutron]`` configures it.

    The constructor's ``collection``, such as ``floatingips``, is the type of the objects on which
    the methods work. Only ``fetch``, ``fetch_any`` and ``send`` can use other collections.
    """

    def __init__(self, conf: ConfigOpts, collection: str) -> None:
        self._adapter: Adapter = session.adapter(conf, session.make_session(conf), "neutron")
        self._collection, self._noun = collection, collection.removesuffix("s")

    def find(self, **query: Any) -> list[dict[str, Any]]:
        """Return the objects of the client's collection whose fields have the values in ``query``.

        A value may be a list of alternatives.
        """
        return self.fetch(self._collection, query)

    def tagged(self, reservation_id: str) -> list[dict[str, Any]]:
        """Return the objects that climate created for a reservation.

        Both the tag and the description must name the reservation, because owners can put the tag
        on other objects.
        """
        mark = f"{_DESCRIPTION}{reservation_id}"
        objects = self.find(tags=f"{_RESERVATION}{reservation_id}")
        return [each for each in objects if (each.get("description") or "").endswith(mark)]

    def create(self, reservation_id: str, values: Mapping[str, Any], description: str = "") -> str:
        """Create an object with the fields in ``values``; return its id.

        climate adds its mark with the reservation's id to ``description``. The object has no tags
        yet.
        """
        text = f"{description} {_DESCRIPTION}{reservation_id}".strip()
        answer = self.send("POST", self._collection, {self._noun: {**values, "description": text}})
        return str(answer.json()[self._noun]["id"])

    def change(self, id_: str, **values: Any) -> None:
        """Set fields of an object; do nothing if the object does not exist."""
        self.send("PUT", f"{self._collection}/{id_}", {self._noun: values}, missing=True)

    def delete(self, id_: str) -> None:
        """Delete an object, if it exists."""
        self.send("DELETE", f"{self._collection}/{id_}", missing=True)

    def mark(self, id_: str, reservation_id: str) -> None:
        """Add climate's tags to an object; keep its other tags."""
        path = f"{self._collection}/{id_}/tags"
        before = self.send("GET", path).json()["tags"]
        tags = {*before, _BLAZAR, MARK, f"{_RESERVATION}{reservation_id}"}
        self.send("PUT", path, {"tags": sorted(tags)})

    def unmark(self, id_: str) -> None:
        """Remove climate's tags from an object, and climate's mark from its description.

        Text after the mark is removed, too. Does nothing if the object does not exist.
        """
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
        """Yield the objects of any ``collection`` whose field ``name`` has one of ``values``."""
        for start in range(0, len(values), _CHUNK):
            yield from self.fetch(collection, {name: values[start : start + _CHUNK]})

    def fetch(self, collection: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the objects of any ``collection`` whose fields have the values in ``query``.

        Neutron returns them in pages if an operator limits the length of its answers
        (``pagination_max_limit``).
        """
        objects: list[dict[str, Any]] = []
        while True:
            page = self.send("GET", collection, params=query).json()
            objects += page[collection]
            if not any(link["rel"] == "next" for link in page.get(f"{collection}_links", ())):
                return objects
            query = {**query, "marker": objects[-1]["id"]}

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        missing: bool = False,
    ) -> Response:
        """Send a request to Neutron, and return the response.

        ``path`` is relative to ``/v2.0/``. If ``missing`` is set, the status 404 is not an error.
        Raises BackendUnavailable with Neutron's reason.
        """
        allowed = (GONE,) if missing else ()
        path = f"/v2.0/{path}"
        return session.send(
            self._adapter, "Neutron", method, path, allowed=allowed, json=body, params=params
        )


def marks(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``reservation_id`` and ``is_marked`` of an Occupant for a Neutron object.

    An Occupant is an object in the cloud that uses a reserved address or network segment.
    ``reservation_id`` comes from the object's tags, otherwise from its description, otherwise it is
    None. ``is_marked`` is true if the object has both climate's tag and a tag with a reservation
    id.
    """
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
