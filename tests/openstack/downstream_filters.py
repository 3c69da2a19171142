"""Two filters of an operator, written for Nova's scheduler; only Nova can import this module."""

from typing import Any

from nova.scheduler.filters import BaseHostFilter


class RackFilter(BaseHostFilter):  # type: ignore[misc]  # Nova has no types
    """Reject hosts in a closed rack, by the metadata of their host aggregates."""

    RUN_ON_REBUILD = False

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        del spec_obj
        return all("closed" not in each.metadata.get("rack", "") for each in host_state.aggregates)


class FirstProjectFilter(BaseHostFilter):  # type: ignore[misc]  # Nova has no types
    """Keep each host for the first project that asked for it."""

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[str, str] = {}

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(
            self._owners.setdefault(host_state.host, spec_obj.project_id) == spec_obj.project_id
        )
