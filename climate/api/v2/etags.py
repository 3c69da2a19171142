"""ETag and If-Match: nobody changes a lease that is not any more the one they looked at."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flask import request

from climate.api.v2 import schemas
from climate.core.errors import PreconditionFailed
from climate.core.lease import Lease
from climate.manager.leases.create import Precondition


def etag(body: Mapping[str, Any]) -> str:
    """Return the tag of what a lease looks like; another look is another tag."""
    packed = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f'"{fingerprint(packed)[:32]}"'


def fingerprint(text: str) -> str:
    """Return what tells a text from all others."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def if_match() -> Precondition | None:
    """Return the condition of the request, None if it has none."""
    if "If-Match" not in request.headers or request.if_match.star_tag:
        return None
    wanted = request.if_match

    def check(lease: Lease) -> None:
        present = etag(schemas.LEASE.dump(lease))
        if not wanted.contains(present.strip('"')):
            raise PreconditionFailed(
                f"Lease {lease.id} has changed since: look at it again, then decide",
                {"etag": present},
            )

    return check
