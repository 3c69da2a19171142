"""Heat stacks that tests create on any cloud."""

import contextlib
import json
import time
from typing import Any

from heatclient.client import Client
from heatclient.exc import HTTPInternalServerError

from tests.openstack.accounts import Account
from tests.openstack.templates import Template
from tests.support.process import eventually

_PATIENCE = 120.0
_TRIES = 2
_PAUSE = 2.0
_UNSETTLED = "_IN_PROGRESS"
_GONE = "DELETE_COMPLETE"
_FAILED = {"CREATE_FAILED", "UPDATE_FAILED"}


class Stack:
    """A stack, as its owner sees it."""

    def __init__(self, owner: Account, name: str, template: Template) -> None:
        """Create it; raises the client's error if Heat rejects it."""
        session = owner.cloud.session
        region = owner.cloud.config.get_region_name()
        self._heat = Client("1", session=session, region_name=region, endpoint_type="publicURL")
        self.id = self._create(stack_name=name, template=json.dumps(template))

    def settled(self) -> tuple[str, str]:
        """Wait until Heat completed the operation; return its status and the reason."""
        stack = eventually(self._settled, f"Heat is done with stack {self.id}", _PATIENCE)
        return stack.stack_status, stack.stack_status_reason

    def update(self, template: Template) -> tuple[str, str]:
        """Update it to the template; return the result of ``settled``."""
        self._heat.stacks.update(self.id, template=json.dumps(template))
        return self.settled()

    def delete(self) -> tuple[str, str]:
        """Delete it, if it exists; return the result of ``settled``."""
        # Never twice: Heat fails over one that is nearly gone.
        if self.settled()[0] != _GONE:
            self._heat.stacks.delete(self.id)
        # Unless Heat dropped it, as it does while it tidies up after another failure.
        if self.settled()[0] in _FAILED:
            self._heat.stacks.delete(self.id)
        return self.settled()

    def resource(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return the physical id of its resource, and its attributes."""
        found = self._heat.resources.get(self.id, name)
        return found.physical_resource_id, found.attributes

    @property
    def outputs(self) -> dict[str, Any]:
        stack = self._heat.stacks.get(self.id)
        return {output["output_key"]: output["output_value"] for output in stack.outputs}

    def _create(self, **options: str) -> str:
        # Now and then Keystone mistakes Heat's token for that of the one who is just deleting an
        # other stack, and Heat has "Internal Error"; what we refuse is never a 500.
        for _ in range(_TRIES):
            with contextlib.suppress(HTTPInternalServerError):
                return str(self._heat.stacks.create(**options)["stack"]["id"])
            time.sleep(_PAUSE)
        return str(self._heat.stacks.create(**options)["stack"]["id"])

    def _settled(self) -> Any | None:
        stack = self._heat.stacks.get(self.id, resolve_outputs=False)
        # Heat still has the trust of one that is gone, until it says when that was deleted.
        is_left = stack.stack_status == _GONE and not stack.deletion_time
        return None if is_left or stack.stack_status.endswith(_UNSETTLED) else stack
