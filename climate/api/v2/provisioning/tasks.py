"""The routes of ``/v2/preparations`` and ``/v2/shutdowns``: tasks of provisioners.

Provisioners are programs that switch hosts on and off. They use these routes to find their tasks,
and to report progress.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from marshmallow import Schema

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.provisioning import schemas
from climate.core.page import PREPARATION_SORTS, SHUTDOWN_SORTS, TaskFilter
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.shutdown import ShutdownState
from climate.core.provisioning.task import Report
from climate.manager.provisioning import preparations, shutdowns

S = TypeVar("S", PreparationState, ShutdownState)


def list_preparations(call: Call) -> Answer:
    """List preparations: hosts that must be ready at a certain time.

    If there is no such preparation, the request can wait until there is one (long polling).
    """
    query = validation.query(schemas.PREPARATION_QUERY)
    page = paging.page(query)
    part = preparations.find(call.runtime, _filter(call, query), page, query["wait"])
    following = paging.following(page, part, PREPARATION_SORTS)
    return schemas.PREPARATION_PAGE.dump({"preparations": part.items, "next": following}), 200


def list_shutdowns(call: Call) -> Answer:
    """List shutdowns: hosts that provisioners must switch off, or have switched off."""
    query = validation.query(schemas.SHUTDOWN_QUERY)
    page = paging.page(query)
    part = shutdowns.find(call.runtime, _filter(call, query), page)
    following = paging.following(page, part, SHUTDOWN_SORTS)
    return schemas.SHUTDOWN_PAGE.dump({"shutdowns": part.items, "next": following}), 200


def show_preparation(call: Call, preparation_id: str) -> Answer:
    """Show a preparation of a host."""
    return schemas.PREPARATION.dump(preparations.get(call.runtime, preparation_id)), 200


def show_shutdown(call: Call, shutdown_id: str) -> Answer:
    """Show a shutdown of a host."""
    return schemas.SHUTDOWN.dump(shutdowns.get(call.runtime, shutdown_id)), 200


def report_preparation(call: Call, preparation_id: str) -> Answer:
    """Report the progress of a preparation."""
    report = _report(call, schemas.REPORT, PreparationState)
    return schemas.PREPARATION.dump(preparations.report(call.runtime, preparation_id, report)), 200


def report_shutdown(call: Call, shutdown_id: str) -> Answer:
    """Report the progress of a shutdown."""
    report = _report(call, schemas.SHUTDOWN_REPORT, ShutdownState)
    return schemas.SHUTDOWN.dump(shutdowns.report(call.runtime, shutdown_id, report)), 200


def _filter(call: Call, query: Mapping[str, Any]) -> TaskFilter:
    return TaskFilter(
        states=tuple(query["state"]),
        node=query.get("node"),
        hardware=query.get("hardware"),
        lease_id=query.get("lease"),
        claimable_at=call.runtime.clock.now() if query["claimable"] else None,
    )


def _report(call: Call, schema: Schema, state: type[S]) -> Report[S]:
    """Return the report in the request body: the progress of a provisioner's task.

    ``state`` is the enum of the states of the task. Raises InvalidInput.
    """
    data = validation.load(schema, validation.body(call))
    claim = timedelta(seconds=data.pop("claim_seconds"))
    return Report(**{**data, "state": state(data["state"]), "claim": claim})
