"""``OS::Climate::Lease``: a Heat resource type for leases.

heat-engine loads every module in the folders of ``[DEFAULT] plugin_dirs``. This module needs only
Heat's own dependencies. It calls climate's v2 API at the catalog's ``reservation`` endpoint.
"""

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from heat.common import exception
from heat.engine import attributes, properties, resource
from keystoneauth1 import exceptions as http_errors

_UNFINISHED = ("UNDONE", "IN_PROGRESS")
_NOW, _ASAP = "now", "asap"
# Seconds to wait for a response: a DELETE waits until the lease has ended.
_TIMEOUT = 120
_TIMES = "start", "end", "before_end"


class Refused(exception.Error):
    """climate rejected the request; the message is climate's."""


class ClimateLease(resource.Resource):
    """A lease with reservations of any resource types."""

    properties_schema: ClassVar[dict[str, Any]] = {
        "name": properties.Schema(
            properties.Schema.STRING, "The physical name by default.", update_allowed=True
        ),
        "start": properties.Schema(
            properties.Schema.STRING,
            "An ISO 8601 time with zone, now, or asap (with duration and end_by).",
            default="now",
            update_allowed=True,
        ),
        "end": properties.Schema(
            properties.Schema.STRING, "An ISO 8601 time with zone.", update_allowed=True
        ),
        "duration": properties.Schema(
            properties.Schema.INTEGER, "Seconds, instead of the end.", update_allowed=True
        ),
        "end_by": properties.Schema(
            properties.Schema.STRING, "With the start asap: when it must have ended."
        ),
        "before_end": properties.Schema(
            properties.Schema.STRING, "When to tell that it ends.", update_allowed=True
        ),
        "reservations": properties.Schema(
            properties.Schema.LIST,
            "What is reserved, all of it or nothing.",
            required=True,
            update_allowed=True,
            schema=properties.Schema(
                properties.Schema.MAP,
                schema={
                    "resource_type": properties.Schema(
                        properties.Schema.STRING, "physical:host, for example.", required=True
                    ),
                    "params": properties.Schema(
                        properties.Schema.MAP, "As in climate's v2 API.", default={}
                    ),
                },
            ),
        ),
        "wait_until_active": properties.Schema(
            properties.Schema.BOOLEAN,
            "Whether the resource is complete when the lease has started, and not before.",
            default=False,
            update_allowed=True,
        ),
    }

    attributes_schema: ClassVar[dict[str, Any]] = {
        name: attributes.Schema(text, type=kind)
        for name, text, kind in (
            ("status", "Where the lease stands.", attributes.Schema.STRING),
            ("start", "When it starts.", attributes.Schema.STRING),
            ("end", "When it ends.", attributes.Schema.STRING),
            ("reservations", "What it reserves.", attributes.Schema.LIST),
            ("events", "What is due when.", attributes.Schema.LIST),
            ("reservation_id", "Of the first reservation.", attributes.Schema.STRING),
            ("reservation_ids", "In the order of the template.", attributes.Schema.LIST),
            ("flavor_id", "Of the first that has a flavor.", attributes.Schema.STRING),
            ("flavor_ids", "In the same order; empty where there is none.", attributes.Schema.LIST),
        )
    }

    def handle_create(self) -> None:
        """Create the lease. A repeated request of the same resource returns the same lease."""
        body = self._request_body(self.properties)
        lease = self._call("POST", "", body, {"Idempotency-Key": f"heat-{self.uuid}"})
        self.resource_id_set(lease["id"])
        self._store_ids(_own_ids(lease))

    def check_create_complete(self, _created: object) -> bool:
        """Return whether the creation is complete; it may include the start of the lease."""
        return not self.properties["wait_until_active"] or self._is_active()

    def needs_replace_with_prop_diff(
        self, changed: set[str], after: Mapping[str, Any], _before: Mapping[str, Any]
    ) -> bool:
        """Return whether to replace the lease: ``asap`` cannot be applied to an existing lease."""
        return "start" in changed and after["start"] == _ASAP

    def handle_update(
        self,
        json_snippet: Any,  # noqa: ANN401 - Heat's
        _tmpl_diff: object,
        prop_diff: Mapping[str, Any],
    ) -> bool:
        """Change the lease in place; return whether to wait until it is active."""
        after = json_snippet.properties(self.properties_schema, self.context)
        change = {name: after[name] for name in ("name", *_TIMES) if prop_diff.get(name)}
        if after["duration"] and not prop_diff.keys().isdisjoint({"start", "duration"}):
            start = change.get("start") or self._lease()["start"]
            change["end"] = _later(start, after["duration"])
        ids = self._stored_ids()
        next_ids: list[str | None] = [*ids]
        if "reservations" in prop_diff:
            parts, next_ids = _changes(ids, self.properties["reservations"], after["reservations"])
            change.update(parts)
        if change:
            before = {reservation["id"] for reservation in self._lease()["reservations"]}
            lease = self._call("PATCH", f"/{self.resource_id}", change)
            added = [id_ for id_ in _own_ids(lease) if id_ not in before]
            self._store_ids([id_ or added.pop(0) for id_ in next_ids])
        return bool(after["wait_until_active"])

    def check_update_complete(self, waits: bool) -> bool:  # noqa: FBT001 - as Heat calls it
        """Return whether the manager has handed over the changed resources."""
        return not waits or self._is_active()

    def handle_delete(self) -> None:
        """Delete the lease. A manager reclaims its resources first."""
        if self.resource_id is not None:
            with contextlib.suppress(http_errors.NotFound):
                self._call("DELETE", f"/{self.resource_id}")

    def check_delete_complete(self, _deleted: object) -> bool:
        """Return whether the lease is deleted."""
        try:
            return self.resource_id is None or not self._lease()
        except http_errors.NotFound:
            return True

    def _show_resource(self) -> dict[str, Any]:
        return self._lease()

    def _resolve_attribute(self, name: str) -> Any:  # noqa: ANN401 - of any type
        if self.resource_id is None:
            return None
        lease = self._lease()
        by_id = {reservation["id"]: reservation for reservation in lease["reservations"]}
        reservations = [by_id[id_] for id_ in self._stored_ids() if id_ in by_id]
        ids = [reservation["id"] for reservation in reservations]
        flavors = [reservation["details"].get("flavor_id") for reservation in reservations]
        values = {
            **lease,
            "reservation_ids": ids,
            "reservation_id": ids[0] if ids else None,
            "flavor_ids": [flavor or "" for flavor in flavors],
            "flavor_id": next(filter(None, flavors), None),
        }
        return values[name]

    def _request_body(self, values: Mapping[str, Any]) -> dict[str, Any]:
        names = (*_TIMES, "duration", "end_by")
        times = {name: values[name] for name in names if values[name] is not None}
        reservations = [_reservation(reservation) for reservation in values["reservations"]]
        name = values["name"] or self.physical_resource_name()
        return {"name": name[:80], "reservations": reservations, **times}

    def _is_active(self) -> bool:
        """Return whether the lease has started (or ended) and no update of it is in progress."""
        lease = self._lease()
        if lease["status"] == "ERROR":
            raise exception.ResourceInError(
                resource_status="ERROR", status_reason="climate could not start the lease"
            )
        updates = [event for event in lease["events"] if event["type"] == "update_lease"]
        is_updated = not any(event["status"] in _UNFINISHED for event in updates)
        return lease["status"] in {"ACTIVE", "TERMINATED"} and is_updated

    def _store_ids(self, reservation_ids: Sequence[str]) -> None:
        """Store the ids of the reservations, in the order of the template."""
        self.data_set("reservation_ids", json.dumps(reservation_ids))

    def _stored_ids(self) -> list[str]:
        return list(json.loads(self.data().get("reservation_ids", "[]")))

    def _lease(self) -> dict[str, Any]:
        return self._call("GET", f"/{self.resource_id}")

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request as the owner of the stack. Raises Refused, NotFound."""
        endpoint = self.client_plugin("blazar").url_for(service_type="reservation")
        url = f"{endpoint.rstrip('/').removesuffix('/v1')}/v2/leases{path}"
        session = self.context.keystone_session
        try:
            response = session.request(
                url, method, json=body, headers=dict(headers or {}), timeout=_TIMEOUT
            )
        except http_errors.NotFound:
            raise
        except http_errors.HttpError as error:
            raise Refused(_message(error)) from error
        return dict(response.json()) if response.content else {}


def _own_ids(lease: Mapping[str, Any]) -> list[str]:
    """Return the ids of the present reservations of a request.

    climate adds others: for the parts of stacks, and for hosts that a reservation gives back.
    """
    return [
        each["id"]
        for each in lease["reservations"]
        if "stack" not in each["params"]
        and each["status"] != "deleted"
        and not each["details"].get("leaving")
    ]


def _reservation(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"resource_type": values["resource_type"], "params": dict(values["params"] or {})}


def _changes(
    ids: Sequence[str], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str | None]]:
    """Return the changes of the reservations, and their ids afterwards: None for an added one.

    Two reservations at the same position in the template are the same if they have the same type.
    """
    change: dict[str, list[Any]] = {
        "reservations": [],
        "add_reservations": [],
        "remove_reservations": [],
    }
    next_ids: list[str | None] = []
    for id_, old, new in itertools.zip_longest(ids, before, after):
        is_same = old and new and old["resource_type"] == new["resource_type"]
        if id_ is not None and not is_same:
            change["remove_reservations"].append(id_)
        if is_same:
            next_ids.append(id_)
            if _reservation(old) != _reservation(new):
                change["reservations"].append({"id": id_, "params": _reservation(new)["params"]})
        elif new:
            next_ids.append(None)
            change["add_reservations"].append(_reservation(new))
    return {name: parts for name, parts in change.items() if parts}, next_ids


def _later(start: str, seconds: int) -> str:
    begin = datetime.now(UTC) if start == _NOW else datetime.fromisoformat(start)
    return (begin + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _message(error: http_errors.HttpError) -> str:
    """Return the message in climate's response, or else the client library's."""
    try:
        return str(error.response.json()["detail"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)


def resource_mapping() -> dict[str, type[resource.Resource]]:
    """Return the resource types of this module; heat-engine calls this."""
    return {"OS::Climate::Lease": ClimateLease}
