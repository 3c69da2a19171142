"""Examples of request bodies for each route, which the interactive page of the API shows.

A new ``climate-standalone``, with its simulated cloud, accepts each example unchanged. A test sends
them all.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

_HOST = {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}

_END_BY = "end_by"
# Days from the present day to the dates of ``_END_BY``.
_AHEAD = timedelta(days=7)

# Bodies by method and path of the route, and by their summaries; the page shows the first one.
Examples = Mapping[str, Mapping[str, Mapping[str, Any]]]


def examples(today: date) -> Examples:
    """Return the example bodies of each route. Their dates are a week after ``today``.

    The result maps a route, such as ``"POST /v2/leases"``, to a dict that maps the summary of each
    example to its body.
    """
    end_by = f"{today + _AHEAD}T00:00:00Z"
    return {
        route: {
            summary: {**body, _END_BY: end_by} if _END_BY in body else body
            for summary, body in bodies.items()
        }
        for route, bodies in _EXAMPLES.items()
    }


_EXAMPLES: Examples = {
    "POST /v2/leases": {
        "One host, now": {
            "name": "first lease",
            "start": "now",
            "duration": 3600,
            "reservations": [_HOST],
        },
        "Two large hosts as soon as possible": {
            "name": "training run",
            "start": "asap",
            "duration": 7200,
            _END_BY: "",
            "reservations": [
                {
                    "resource_type": "physical:host",
                    "params": {
                        "min": 1,
                        "max": 2,
                        "hypervisor_properties": [">=", "$vcpus", 16],
                    },
                }
            ],
        },
        "Room for two instances": {
            "name": "two small servers",
            "start": "now",
            "duration": 3600,
            "reservations": [
                {
                    "resource_type": "virtual:instance",
                    "params": {
                        "amount": 2,
                        "vcpus": 2,
                        "memory_mb": 4096,
                        "disk_gb": 20,
                        "affinity": None,
                    },
                }
            ],
        },
    },
    "PATCH /v2/leases/<lease_id>": {
        "Another name": {"name": "renamed"},
        "End now": {"end": "now"},
        "One more reservation": {"add_reservations": [_HOST]},
    },
    "POST /v2/offers": {
        "One host, held for two minutes": {
            "name": "to be approved",
            "start": "now",
            "duration": 3600,
            "hold": 120,
            "reservations": [_HOST],
        },
    },
    "POST /v2/availability/search": {
        "Two hosts for four hours": {
            "reservations": [
                {"resource_type": "physical:host", "params": {"min": 2, "max": 2}},
            ],
            "duration": 14400,
            _END_BY: "",
            "limit": 3,
        }
    },
    "POST /v2/resources": {
        "A host, with a property": {
            "resource_type": "physical:host",
            "name": "sim-9",
            "properties": {"rack": "r2"},
        }
    },
    "PATCH /v2/resources/<resource_id>": {
        "Another rack": {"properties": {"rack": "r3"}},
        "Without a rack": {"properties": {"rack": None}},
    },
    "POST /v2/resources/stats": {
        "Two stats of a host": {
            "items": [
                {
                    "resource": "sim-1",
                    "generation": 1,
                    "stats": {"firmware": "1.10", "load_percent": 12.5},
                }
            ]
        },
    },
    "PATCH /v2/resources/<resource_id>/readiness": {
        "Set a host aside": {"set_aside": "disk failure"},
        "Return the host": {"set_aside": None},
    },
    "POST /v2/subscriptions": {
        "Starts and ends of leases": {
            "url": "https://example.org/hook",
            "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
            "event_types": ["lease.*"],
        },
        "Reminders in a channel of Slack": {
            "url": "https://example.org/services/T0/B0/x",
            "format": "slack",
            "event_types": ["lease.event.before_start_lease", "lease.event.before_end_lease"],
            "time_zone": "Europe/Berlin",
        },
    },
    "PATCH /v2/subscriptions/<subscription_id>": {
        "Suspend": {"status": "suspended"},
        "Resume": {"status": "active"},
    },
    "POST /v2/subscriptions/<subscription_id>/redeliver": {"All dead letters": {}},
}
