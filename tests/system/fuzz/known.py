"""Ids, ETags and markers from the answers of the service, for later requests."""

import json
import random
from collections import defaultdict, deque
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.api.random_requests import Answer

# The kind of the objects in a collection, by its name in paths and in answers.
KINDS = {
    "leases": "lease",
    "os-hosts": "host",
    "hosts": "host",
    "floatingips": "floatingip",
    "networks": "network",
    "resources": "resource",
    "subscriptions": "subscription",
    "preparations": "preparation",
    "shutdowns": "shutdown",
}
_KEPT = 40
ABSENT = "00000000-0000-4000-8000-000000000000"


class Known:
    """The latest ids of each kind, and the latest ETags and markers."""

    def __init__(self) -> None:
        self._values: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._reservations: dict[str, list[str]] = {}

    def pick(self, rng: random.Random, kind: str) -> str:
        """Return a value of this kind, with one draw of ``rng`` whatever is known."""
        draw, values = rng.random(), self._values[kind]
        return values[int(draw * len(values))] if values else ABSENT

    def reservation(self, rng: random.Random, lease_id: str) -> str:
        """Return the id of a reservation of the lease."""
        draw, ids = rng.random(), self._reservations.get(lease_id)
        return ids[int(draw * len(ids))] if ids else ABSENT

    def forget(self, path: str) -> None:
        """Forget the object that a request has deleted."""
        kind, id_ = KINDS[path.split("/")[2]], path.rpartition("/")[2]
        if id_ in self._values[kind]:
            self._values[kind].remove(id_)

    def learn(self, path: str, answer: Answer) -> None:
        """Keep what a successful answer in JSON contains."""
        if answer.status >= 300 or not answer.body.startswith(b"{"):
            return
        body = json.loads(answer.body)
        if etag := answer.headers.get("ETag"):
            self._keep("etag", etag)
        if isinstance(body.get("next"), str):
            self._keep("marker", parse_qs(urlsplit(body["next"]).query)["marker"][0])
        for name, kind in KINDS.items():
            items = body.get(name, body.get(kind))
            for item in items if isinstance(items, list) else [items]:
                self._learn(kind, item)
        collection = path.split("/")[2:3]
        if collection and collection[0] in KINDS and isinstance(body.get("id"), str):
            self._learn(KINDS[collection[0]], body)

    def _learn(self, kind: str, item: Any) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            return
        self._keep(kind, item["id"])
        if item.get("reservations"):
            self._reservations[item["id"]] = [part["id"] for part in item["reservations"]]

    def _keep(self, kind: str, value: str) -> None:
        if value not in self._values[kind]:
            self._values[kind].append(value)
