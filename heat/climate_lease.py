"""``OS::Climate::Lease``: a lease of climate's as a resource of Heat's.

For heat-engine, which loads every module of the folders that ``[DEFAULT] plugin_dirs`` names; needs
nothing but Heat. It speaks climate's v2 API at the catalog's ``reservation`` endpoint.
"""

import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from heat.common import exception
from heat.engine import attributes, properties, resource
from keystoneauth1 import exceptions as answers

_OPEN = ("UNDONE", "IN_PROGRESS")
_NOW, _ASAP = "now", "asap"
# Seconds that an answer may take: a lease that is ended is waited for.
_PATIENCE = 120
_TIMES = "start", "end", "before_end"


class Refused(exception.Error):
    """What climate did not do, in its own words."""


class ClimateLease(resource.Resource):
    """A lease of any of the types that climate can reserve."""

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
        """Ask for the lease; asked again by the same resource it is the same lease."""
        wished = self._wished(self.properties)
        made = self._ask("POST", "", wished, {"Idempotency-Key": f"heat-{self.uuid}"})
        self.resource_id_set(made["id"])
        self._remember([one["id"] for one in made["reservations"]])

    def check_create_complete(self, _made: object) -> bool:
        """Tell whether what was asked for is there."""
        return not self.properties["wait_until_active"] or self._is_settled()

    def needs_replace_with_prop_diff(
        self, changed: set[str], after: Mapping[str, Any], _before: Mapping[str, Any]
    ) -> bool:
        """Tell whether it must be another lease: when it can start was decided once."""
        return "start" in changed and after["start"] == _ASAP

    def handle_update(
        self,
        json_snippet: Any,  # noqa: ANN401 - Heat's
        _tmpl_diff: object,
        prop_diff: Mapping[str, Any],
    ) -> bool:
        """Change the lease in place; tell whether to wait until that is done."""
        after = json_snippet.properties(self.properties_schema, self.context)
        change = {name: after[name] for name in ("name", *_TIMES) if prop_diff.get(name)}
        if after["duration"] and not prop_diff.keys().isdisjoint({"start", "duration"}):
            start = change.get("start") or self._lease()["start"]
            change["end"] = _later(start, after["duration"])
        ids = self._remembered()
        kept: list[str] = ids
        if "reservations" in prop_diff:
            composed, kept = _composed(ids, self.properties["reservations"], after["reservations"])
            change.update(composed)
        if change:
            lease = self._ask("PATCH", f"/{self.resource_id}", change)
            fresh = [one["id"] for one in lease["reservations"] if one["id"] not in ids]
            self._remember([id_ or fresh.pop(0) for id_ in kept])
        return bool(after["wait_until_active"])

    def check_update_complete(self, waits: bool) -> bool:  # noqa: FBT001 - Heat calls it so
        """Tell whether what changed was handed over."""
        return not waits or self._is_settled()

    def handle_delete(self) -> None:
        """Remove the lease; what it has is taken back first."""
        if self.resource_id is not None:
            with contextlib.suppress(answers.NotFound):
                self._ask("DELETE", f"/{self.resource_id}")

    def check_delete_complete(self, _gone: object) -> bool:
        """Tell whether it is gone."""
        try:
            return self.resource_id is None or not self._lease()
        except answers.NotFound:
            return True

    def _show_resource(self) -> dict[str, Any]:
        return self._lease()

    def _resolve_attribute(self, name: str) -> Any:  # noqa: ANN401 - of any type
        if self.resource_id is None:
            return None
        lease = self._lease()
        known = {one["id"]: one for one in lease["reservations"]}
        mine = [known[id_] for id_ in self._remembered() if id_ in known]
        flavors = [one["details"].get("flavor_id") for one in mine]
        found = {
            **lease,
            "reservation_ids": [one["id"] for one in mine],
            "reservation_id": mine[0]["id"] if mine else None,
            "flavor_ids": [flavor or "" for flavor in flavors],
            "flavor_id": next(filter(None, flavors), None),
        }
        return found[name]

    def _wished(self, given: Mapping[str, Any]) -> dict[str, Any]:
        names = (*_TIMES, "duration", "end_by")
        wished = {name: given[name] for name in names if given[name] is not None}
        reservations = [_reservation(one) for one in given["reservations"]]
        name = given["name"] or self.physical_resource_name()
        return {"name": name[:80], "reservations": reservations, **wished}

    def _is_settled(self) -> bool:
        lease = self._lease()
        if lease["status"] == "ERROR":
            raise exception.ResourceInError(
                resource_status="ERROR", status_reason="climate could not start the lease"
            )
        pending = [one for one in lease["events"] if one["type"] == "update_lease"]
        is_done = not any(one["status"] in _OPEN for one in pending)
        return lease["status"] in {"ACTIVE", "TERMINATED"} and is_done

    def _remember(self, reservation_ids: Sequence[str]) -> None:
        """Keep the ids of the reservations, in the order in which the template has them."""
        self.data_set("reservation_ids", json.dumps(reservation_ids))

    def _remembered(self) -> list[str]:
        return list(json.loads(self.data().get("reservation_ids", "[]")))

    def _lease(self) -> dict[str, Any]:
        return self._ask("GET", f"/{self.resource_id}")

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request as the stack's owner. Raises Refused, and NotFound."""
        endpoint = self.client_plugin("blazar").url_for(service_type="reservation")
        url = f"{endpoint.rstrip('/').removesuffix('/v1')}/v2/leases{path}"
        session = self.context.keystone_session
        try:
            answer = session.request(
                url, method, json=body, headers=dict(headers or {}), timeout=_PATIENCE
            )
        except answers.NotFound:
            raise
        except answers.HttpError as error:
            raise Refused(_sentence(error)) from error
        return dict(answer.json()) if answer.content else {}


def _reservation(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"resource_type": asked["resource_type"], "params": dict(asked["params"] or {})}


def _composed(
    ids: Sequence[str], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str | None]]:
    """Return what of the reservations changes, and their ids then: None where one is new.

    Those at the same place are the same, if they are of the same type.
    """
    change: dict[str, list[Any]] = {
        "reservations": [],
        "add_reservations": [],
        "remove_reservations": [],
    }
    kept: list[str | None] = []
    for id_, old, new in itertools.zip_longest(ids, before, after):
        is_same = old and new and old["resource_type"] == new["resource_type"]
        if id_ is not None and not is_same:
            change["remove_reservations"].append(id_)
        if is_same:
            kept.append(id_)
            if _reservation(old) != _reservation(new):
                change["reservations"].append({"id": id_, "params": _reservation(new)["params"]})
        elif new:
            kept.append(None)
            change["add_reservations"].append(_reservation(new))
    return {name: parts for name, parts in change.items() if parts}, kept


def _later(start: str, seconds: int) -> str:
    begin = datetime.now(UTC) if start == _NOW else datetime.fromisoformat(start)
    return (begin + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _sentence(error: answers.HttpError) -> str:
    """Return what climate said, or at least what the client did."""
    try:
        return str(error.response.json()["detail"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)


def resource_mapping() -> dict[str, type[resource.Resource]]:
    """Return the types of resources that are here; heat-engine calls this."""
    return {"OS::Climate::Lease": ClimateLease}
