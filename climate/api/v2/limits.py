"""``/v2/limits``: what the caller may have, and has."""

from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import capacity_schemas
from climate.manager.admission import limits


def show(call: Call) -> Answer:
    """Show the limits of the caller's project and of the user, and what counts towards them."""
    owner = call.owner
    rules = call.runtime.settings.limits
    found: dict[str, Any] = {
        "apply": rules.apply_to(owner.project_id, owner.user_id, owner.roles),
        "period": int(rules.period.total_seconds()),
        "parties": limits.show(call.runtime, owner),
    }
    return capacity_schemas.LIMITS.dump(found), 200
