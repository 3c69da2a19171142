"""Is the process alive, and can it do its work: for load balancers and supervisors."""

from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from climate.api.call import Answer, Api
from climate.core.errors import NotFound
from climate.db.engine import schema
from climate.observability.metrics import CONTENT_TYPE

# A dispatcher that looked at the database longer ago than this many poll intervals is stuck.
_MISSED_POLLS = 10


def healthz(_api: Api) -> tuple[Any, int]:
    """Answer as long as the process serves requests."""
    return {"status": "ok"}, 200


def readyz(api: Api) -> tuple[Any, int]:
    """Check the database, its schema, and the last tick of a manager in this process."""
    checks = {"database": "ok", "schema": "ok"}
    try:
        schema.check(api.runtime.database)
    except schema.UnknownSchema:
        # It was ours when we started: a later release is being brought in, and migrations are
        # made so that the one before can go on until it is replaced.
        pass
    except schema.SchemaMismatch as error:
        checks["schema"] = str(error)
    except SQLAlchemyError as error:
        checks["database"] = f"does not answer ({type(error).__name__})"
        checks["schema"] = "unknown"
    if api.dispatcher is not None:
        checks["manager"] = _tick(api)
    ready = all(state == "ok" for state in checks.values())
    return {"status": "ready" if ready else "not ready", "checks": checks}, 200 if ready else 503


def metrics(api: Api) -> Answer:
    """Tell Prometheus, if that is allowed; a manager in this process included."""
    if not api.conf.api.metrics:
        raise NotFound("There are no metrics here: see [api] metrics")
    return api.runtime.metrics.exposition().decode(), 200, {"Content-Type": CONTENT_TYPE}


def _tick(api: Api) -> str:
    assert api.dispatcher is not None  # noqa: S101 - the caller looked
    last = api.dispatcher.last_tick
    if last is None:
        return "has not looked for due events yet"
    age = api.runtime.clock.elapsed() - last
    limit = max(1.0, api.runtime.settings.poll_interval) * _MISSED_POLLS
    return "ok" if age <= limit else f"last looked for due events {age:.0f} s ago"
