"""A valid request for each route, with random contents."""

import datetime as dt
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from climate.api.app import OPEN, ROUTES
from tests.support.receiver import SECRET
from tests.support.service import FORMAT
from tests.system.fuzz.known import Known

Json = dict[str, Any]


@dataclass
class Draft:
    """A request before it is encoded; ``path`` has its parameters filled in."""

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class Source:
    """What requests are made from: chance, known ids, and the receiver of webhooks.

    ``named`` are the objects in the path, by kind.
    """

    rng: random.Random
    known: Known
    receiver: str
    named: dict[str, str] = field(default_factory=dict)

    def at(self, seconds: float, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
        return f"{dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds):{form}}"

    def any(self, kind: str) -> str:
        return self.known.pick(self.rng, kind)

    def reservation(self) -> str:
        """Return the id of a reservation of the lease in the path."""
        return self.known.reservation(self.rng, self.named["lease"])


EXPRESSIONS = ["", '[">=", "$vcpus", "1"]', '["not", ["==", "$rack", "r9"]]']
MINUTE, HOUR, YEAR = 60, 3600, 365 * 86400
_TEMPLATES = [
    {"web": {"type": "OS::Nova::Server", "properties": {"flavor": "m1.small"}}},
    {
        "workers": {
            "type": "OS::Heat::AutoScalingGroup",
            "properties": {
                "min_size": 1,
                "max_size": 3,
                "resource": {"type": "OS::Nova::Server", "properties": {"flavor": "m1.large"}},
            },
        },
        "disk": {
            "type": "OS::Cinder::Volume",
            "properties": {"size": 1, "volume_type": {"get_param": "kind"}},
        },
    },
]


def _template(rng: random.Random) -> Any:
    """Return a template as an object, as JSON, or as YAML."""
    resources = rng.choice(_TEMPLATES)
    parameters = {"kind": {"type": "string", "default": "gold"}}
    template = {"heat_template_version": "2016-10-14", "parameters": parameters}
    template["resources"] = resources
    lines = [f"{key}: {json.dumps(value)}" for key, value in template.items()]
    return rng.choice([template, json.dumps(template), "\n".join(lines)])


def _params(s: Source, resource_type: str) -> Json:
    rng = s.rng
    number = rng.randint(1, 2)
    expression = rng.choice(EXPRESSIONS)
    params: dict[str, Json] = {
        "physical:host": {
            "min": 1,
            "max": number,
            "before_end": rng.choice(["", "snapshot", "default"]),
            "hypervisor_properties": expression,
            "resource_properties": "",
        },
        "virtual:instance": {
            "amount": number,
            "vcpus": 1,
            "memory_mb": rng.choice([1, 512]),
            "disk_gb": 1,
            "affinity": "None",
            "resource_properties": expression,
        },
        "flavor:instance": {"flavor_id": rng.choice(["small", "large"]), "amount": number},
        "virtual:floatingip": {"network_id": "sim-public", "amount": number},
        "virtual:network": {"network_name": "lab", "resource_properties": ""},
        "virtual:volume": {"volume_type": "gold", "size": number, "amount": number},
        "virtual:stack": {"template": _template(rng)},
    }
    return params[resource_type]


TYPES = ["physical:host", "virtual:instance", "flavor:instance", "virtual:floatingip"]
TYPES += ["virtual:network", "virtual:volume", "virtual:stack"]


def _reservation_v1(s: Source) -> Json:
    resource_type = s.rng.choices(TYPES, [4, 2, 2, 1, 1, 1, 1])[0]
    return {"resource_type": resource_type, **_params(s, resource_type)}


def _reservation(s: Source) -> Json:
    resource_type = s.rng.choices(TYPES, [4, 2, 2, 1, 1, 1, 2])[0]
    return {"resource_type": resource_type, "params": _params(s, resource_type)}


def _window(rng: random.Random, step: int) -> tuple[int, int]:
    """Return the seconds from now to a start and to an end; start 0 is now."""
    start = rng.choice([0, rng.randint(1, 3) * step, rng.randint(1, 2000) * HOUR])
    return start, start + rng.choice([rng.randint(2, 5) * step, rng.randint(1, 24) * HOUR])


def _lease_v1(s: Source) -> Json:
    start, end = _window(s.rng, MINUTE)
    body: Json = {
        "name": f"lease {s.rng.randint(1, 99)}",
        "start_date": s.at(start, FORMAT) if start else "now",
        "end_date": s.at(end, FORMAT),
        "reservations": [_reservation_v1(s) for _ in range(s.rng.choice([0, 1, 1, 1, 2]))],
        "events": [],
    }
    if start > HOUR:
        event = {"event_type": "backup", "event_date": s.at(start + MINUTE, FORMAT)}
        body["events"] = s.rng.choice([[], [event]])
    return body


def _lease_change_v1(s: Source) -> Json:
    start, end = _window(s.rng, MINUTE)
    change = {"id": s.reservation(), "min": 1, "max": s.rng.randint(1, 4)}
    return s.rng.choice(
        [
            {"name": "renamed"},
            {"end_date": s.at(end, FORMAT)},
            {"start_date": s.at(start, FORMAT), "end_date": s.at(end, FORMAT)},
            {"reservations": [change]},
        ]
    )


def _lease(s: Source) -> Json:
    rng = s.rng
    start, end = _window(rng, 4)
    body: Json = {"name": f"lease {rng.randint(1, 99)}"}
    body["reservations"] = [_reservation(s) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    kind = rng.choice(["end", "end", "duration", "asap"])
    if kind == "asap":
        return body | {"start": "asap", "duration": end - start, "end_by": s.at(YEAR)}
    body["start"] = s.at(start) if start else "now"
    body |= {"end": s.at(end)} if kind == "end" else {"duration": end - start}
    if start > HOUR:
        body["before_end"] = s.at(start + 60)
        body["events"] = [{"type": "backup", "at": s.at(start + 30)}]
    if rng.random() < 0.1:
        body["start_when"] = rng.choice(["scheduled", "ready"])
    return body


def _lease_change(s: Source) -> Json:
    start, end = _window(s.rng, 4)
    changed = {"id": s.reservation(), "params": {"max": s.rng.randint(1, 4)}}
    return s.rng.choice(
        [
            {"name": "renamed"},
            {"end": s.rng.choice(["now", s.at(end)])},
            {"start": s.at(start), "end": s.at(end)},
            {"start_when": s.rng.choice(["scheduled", "ready"])},
            {"reservations": [changed]},
            {"add_reservations": [_reservation(s)]},
            {"remove_reservations": [s.reservation()]},
        ]
    )


def _search(s: Source) -> Json:
    reservations = [_reservation(s) for _ in range(s.rng.randint(1, 2))]
    return {"reservations": reservations, "duration": 60, "end_by": s.at(30 * 86400), "limit": 3}


def _resource(s: Source) -> Json:
    rng, last = s.rng, s.rng.randint(2, 40)
    names = [
        ("physical:host", f"sim-{rng.randint(1, 32)}", {"rack": f"r{last}", "gpu": True}),
        ("virtual:floatingip", f"sim-public/198.51.100.{last}", {}),
        ("virtual:network", f"vlan:sim:{100 + rng.randint(1, 16)}", {}),
        ("virtual:volume", rng.choice(["gold", "silver"]), {"gigabytes": 5000}),
    ]
    resource_type, name, properties = rng.choice(names)
    return {"resource_type": resource_type, "name": name, "properties": properties}


def _stats(s: Source) -> Json:
    hosts = s.rng.sample(range(1, 33), s.rng.randint(1, 5))
    stats = {"load": s.rng.randint(0, 9), "note": s.rng.choice(["a", None, True])}
    generation = s.rng.randint(1, 20)
    items = [{"resource": f"sim-{n}", "generation": generation, "stats": stats} for n in hosts]
    return {"items": items}


def _subscription(s: Source) -> Json:
    more: list[Json] = [{}, {"event_types": ["lease.*"]}, {"after": 0}, {"all_projects": True}]
    more += [{"lease_id": s.any("lease")}, {"resource_type": "physical:host"}]
    if s.rng.random() < 0.3:
        address = f"user{s.rng.randint(1, 20)}@example.org"
        frequency = s.rng.choice(["immediate", "hourly", "daily"])
        email = {"kind": "email", "address": address, "frequency": frequency}
        return {**email, **s.rng.choice([*more[:2], *more[3:], {"time_zone": "Asia/Tokyo"}])}
    form = {"format": s.rng.choice(["cloudevents", "slack", "matrix", "teams"])}
    return {"url": s.receiver, "secret": SECRET, **form, **s.rng.choice(more)}


def _subscription_change(s: Source) -> Json:
    changes: list[Json] = [{"url": s.receiver}, {"secret": SECRET}, {"event_types": []}]
    changes += [{"status": "suspended"}, {"status": "active", "after": s.rng.randint(0, 50)}]
    changes += [{"status": "active"}, {"format": "slack"}, {"frequency": "hourly"}]
    changes += [{"address": "other@example.org"}, {"time_zone": "UTC"}]
    return s.rng.choice(changes)


def _report(s: Source, states: list[str]) -> Json:
    body: Json = {"state": s.rng.choice(states), "owner": s.rng.choice(["ops-1", "ops-2"])}
    if body["state"] in {"failed", "kept"}:
        body["reason"] = "no power"
    return body | s.rng.choice([{}, {"claim_seconds": 3}])


def _prepared(s: Source) -> Json:
    body = _report(s, ["accepted", "accepted", "ready", "failed", "wanted"])
    return body | s.rng.choice([{}, {"cold": True, "seconds": {"power": 4.1, "boot": 20}}])


BODIES: dict[str, Callable[[Source], Json]] = {
    "POST /v1/leases": _lease_v1,
    "PUT /v1/leases/<lease_id>": _lease_change_v1,
    "POST /v1/os-hosts": lambda s: {"name": f"sim-{s.rng.randint(1, 32)}", "rack": "r1", "n": 2},
    "PUT /v1/os-hosts/<host_id>": lambda s: {"rack": f"r{s.rng.randint(1, 9)}", "ssd": True},
    "PATCH /v1/os-hosts/properties/<name>": lambda s: {"private": s.rng.random() < 0.3},
    "POST /v1/floatingips": lambda s: {
        "floating_network_id": "sim-public",
        "floating_ip_address": f"198.51.100.{s.rng.randint(2, 40)}",
    },
    "POST /v1/networks": lambda s: {
        "network_type": "vlan",
        "physical_network": "sim",
        "segment_id": 100 + s.rng.randint(1, 16),
    },
    "POST /v2/leases": _lease,
    "PATCH /v2/leases/<lease_id>": _lease_change,
    "POST /v2/resources": _resource,
    "PATCH /v2/resources/<resource_id>": lambda s: {
        "properties": {"rack": s.rng.choice(["r1", None]), "load": s.rng.randint(0, 9)}
    },
    "POST /v2/resources/stats": _stats,
    "POST /v2/availability/search": _search,
    "POST /v2/subscriptions": _subscription,
    "PATCH /v2/subscriptions/<subscription_id>": _subscription_change,
    "POST /v2/subscriptions/<subscription_id>/redeliver": lambda s: s.rng.choice(
        [{}, {"seqs": [1]}]
    ),
    "POST /v2/preparations/<preparation_id>/report": _prepared,
    "POST /v2/shutdowns/<shutdown_id>/report": lambda s: _report(
        s, ["accepted", "accepted", "off", "on", "kept", "wanted"]
    ),
    "PATCH /v2/resources/<resource_id>/readiness": lambda s: {
        "set_aside": s.rng.choice([None, None, "fan broken"])
    },
}


def _availability(s: Source) -> list[tuple[str, str]]:
    resource_type = s.rng.choice(TYPES[:-1])
    query = [("resource_type", resource_type), ("end", s.at(10 * 86400))]
    if resource_type == "physical:host":
        query += [("params", json.dumps({"resource_properties": EXPRESSIONS[1]}))]
    return query


def _calendar(s: Source) -> list[tuple[str, str]]:
    more = [("resolution", "3600"), ("group_by", "vcpus"), ("limit", "5"), ("whose", "all")]
    required = [("resource_type", s.rng.choice(TYPES[:-1])), ("end", s.at(10 * 86400))]
    return required + s.rng.sample(more, s.rng.choice([0, 1, 2]))


def _period(s: Source) -> list[tuple[str, str]]:
    period = s.rng.choice(["all", "day", "week", "month"])
    return [("since", s.at(-30 * 86400)), ("until", s.at(HOUR)), ("period", period)]


# The parameters of lists: a request has some of these.
_PAGE = [("limit", "5"), ("limit", "1")]
_LOG = [*_PAGE, ("event_type", "lease.*"), ("resource_type", "physical:host"), ("after", "3")]
_TASKS = [*_PAGE, ("state", "accepted"), ("node", "sim-1"), ("claimable", "true")]
QUERIES: dict[str, list[tuple[str, str]] | Callable[[Source], list[tuple[str, str]]]] = {
    "GET /v2/leases": [
        *_PAGE,
        *[("sort", name) for name in ("start", "-end", "name", "-created")],
        *[("status", "PENDING"), ("all_projects", "true"), ("resource_type", "virtual:stack")],
    ],
    "GET /v2/resources": [*_PAGE, ("sort", "-id"), ("properties", EXPRESSIONS[1])],
    "GET /v2/availability": _availability,
    "GET /v2/calendar": _calendar,
    "GET /v2/notifications": [*_LOG, ("wait", "0")],
    "GET /v2/notifications/stream": _LOG[2:],
    "GET /v2/subscriptions": [*_PAGE, ("all_projects", "true")],
    "GET /v2/subscriptions/<subscription_id>/dead-letters": [*_PAGE, ("after", "0")],
    "GET /v2/preparations": [*_TASKS, ("sort", "-needed"), ("wait", "0")],
    "GET /v2/shutdowns": [*_TASKS, ("sort", "-wanted")],
    "GET /v2/readiness": _period,
    "GET /v2/readiness/energy": _period,
}
# Lists of v1 have no pages, and a stream keeps its place for a while, so both are rare.
_WEIGHTS = {
    "POST /v1/leases": 12.0,
    "POST /v2/leases": 24.0,
    "PATCH /v2/leases/<lease_id>": 16.0,
    "PUT /v1/leases/<lease_id>": 10.0,
    "DELETE /v1/leases/<lease_id>": 8.0,
    "DELETE /v2/leases/<lease_id>": 10.0,
    "POST /v2/availability/search": 3.0,
    "POST /v2/preparations/<preparation_id>/report": 5.0,
    "POST /v2/shutdowns/<shutdown_id>/report": 5.0,
    "GET /v1/leases": 0.2,
    "GET /v1/os-hosts/allocations": 0.2,
    "GET /v2/notifications/stream": 0.2,
    "GET /v2/openapi.json": 0.2,
    "GET /v2/docs": 0.2,
    "GET /metrics": 0.2,
}
ROUTE_NAMES = [f"{route.method} {route.path}" for route in (*OPEN, *ROUTES)]
_SHARES = [_WEIGHTS.get(name, 1.0 if name.startswith("GET") else 3.0) for name in ROUTE_NAMES]
# The kind of the objects that a parameter of a path names.
_PARAMETER = re.compile(r"<(\w+?)(?:_id)?>")
_TOKENS = ["alice:lab", "bob:other:member", "carol:lab:reader", "root:any:admin"]


def draft(s: Source, name: str) -> Draft:
    """Return a valid request for the route with this name, as far as its objects exist."""
    method, path = name.split()
    request = Draft(method, _PARAMETER.sub(lambda kind: _value(s, kind[1]), path))
    if name in BODIES:
        request.body = BODIES[name](s)
    parameters = QUERIES.get(name, [])
    if callable(parameters):
        request.query = parameters(s)
    elif parameters:
        request.query = s.rng.sample(parameters, s.rng.choice([0, 1, 1, 2]))
    if s.rng.random() < (0.1 if "<" in path else 0.4):
        request.headers["X-Auth-Token"] = s.rng.choice(_TOKENS)
    return request


def any_route(rng: random.Random) -> str:
    return rng.choices(ROUTE_NAMES, _SHARES)[0]


def _value(s: Source, kind: str) -> str:
    s.named[kind] = s.rng.choice(["rack", "vcpus", "n"]) if kind == "name" else s.any(kind)
    return s.named[kind]
