"""``/v2/preparations``: which hosts are to be got ready, and what is said by those who do."""

from datetime import timedelta
from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import preparation_schemas as schemas
from climate.api.v2.http import paging, validation
from climate.core.page import PREPARATION_SORTS, PreparationFilter
from climate.core.provisioning.preparation import PreparationState
from climate.manager import preparations
from climate.manager.preparations import Report


def index(call: Call) -> Answer:
    """List preparations by when they are needed, or wait for one."""
    asked = validation.query(schemas.PREPARATION_QUERY)
    page = paging.page(asked)
    wanted = PreparationFilter(
        states=tuple(asked["state"]),
        node=asked.get("node"),
        lease_id=asked.get("lease"),
        hardware=asked.get("hardware"),
        claimable_at=call.runtime.clock.now() if asked["claimable"] else None,
    )
    part = preparations.wait_for(call.runtime, wanted, page, asked["wait"])
    last = part.items[-1] if part.more else None
    beyond = paging.link(page, PREPARATION_SORTS[page.sort](last), last.id) if last else None
    return schemas.PREPARATION_PAGE.dump({"preparations": part.items, "next": beyond}), 200


def show(call: Call, preparation_id: str) -> Answer:
    """Show a preparation."""
    body: dict[str, Any] = schemas.PREPARATION.dump(preparations.get(call.runtime, preparation_id))
    return body, 200


def report(call: Call, preparation_id: str) -> Answer:
    """Store what is said of a preparation."""
    data = validation.load(schemas.REPORT, validation.body(call))
    told = Report(
        state=PreparationState(data["state"]),
        owner=data["owner"],
        claim=timedelta(seconds=data["claim_seconds"]),
        seconds=data["seconds"],
        cold=data["cold"],
        reason=data["reason"],
    )
    after = preparations.report(call.runtime, preparation_id, told)
    body: dict[str, Any] = schemas.PREPARATION.dump(after)
    return body, 200
