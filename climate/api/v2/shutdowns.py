"""``/v2/shutdowns``: which hosts are to be switched off, and what is said by those who do."""

from datetime import timedelta
from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import shutdown_schemas as schemas
from climate.api.v2.http import paging, validation
from climate.core.page import SHUTDOWN_SORTS, ShutdownFilter
from climate.core.provisioning.shutdown import ShutdownState
from climate.manager import shutdowns
from climate.manager.shutdowns import Report


def index(call: Call) -> Answer:
    """List shutdowns by when they were wanted."""
    asked = validation.query(schemas.SHUTDOWN_QUERY)
    page = paging.page(asked)
    wanted = ShutdownFilter(
        states=tuple(asked["state"]),
        node=asked.get("node"),
        hardware=asked.get("hardware"),
        claimable_at=call.runtime.clock.now() if asked["claimable"] else None,
    )
    part = shutdowns.find(call.runtime, wanted, page)
    last = part.items[-1] if part.more else None
    beyond = paging.link(page, SHUTDOWN_SORTS[page.sort](last), last.id) if last else None
    return schemas.SHUTDOWN_PAGE.dump({"shutdowns": part.items, "next": beyond}), 200


def show(call: Call, shutdown_id: str) -> Answer:
    """Show a shutdown."""
    body: dict[str, Any] = schemas.SHUTDOWN.dump(shutdowns.get(call.runtime, shutdown_id))
    return body, 200


def report(call: Call, shutdown_id: str) -> Answer:
    """Store what is said of a shutdown."""
    data = validation.load(schemas.SHUTDOWN_REPORT, validation.body(call))
    told = Report(
        state=ShutdownState(data["state"]),
        owner=data["owner"],
        claim=timedelta(seconds=data["claim_seconds"]),
        reason=data["reason"],
    )
    body: dict[str, Any] = schemas.SHUTDOWN.dump(shutdowns.report(call.runtime, shutdown_id, told))
    return body, 200
