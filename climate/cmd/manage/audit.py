"""The command ``climate-manage audit``: compares leases with the cloud, and repairs differences."""

import argparse
import logging
from collections.abc import Sequence

from oslo_config.cfg import ConfigOpts

from climate.cmd import bootstrap, demo_cloud
from climate.cmd.database import check_exists, explains_errors
from climate.core.errors import ClimateError
from climate.db.engine import schema
from climate.manager.audit import cloud
from climate.manager.audit.cloud import Repair
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Drift

LOG = logging.getLogger(__name__)


@explains_errors
def run(conf: ConfigOpts, arguments: argparse.Namespace) -> int:
    """Print the differences between the cloud and the leases; return the exit code.

    The exit code is 2 if there are differences, else 0. With ``--repair``, first repair those that
    are safe to repair; the exit code is 0 if that repaired all. Raises Misconfigured if another
    process has the simulated cloud in its memory.
    """
    check_exists(conf)
    demo_cloud.share_cloud(conf)
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        demo_cloud.check_shared(conf, runtime.plugins)
        drifts = cloud.audit(runtime)
        outcomes = _repair_all(runtime, drifts) if arguments.repair else {}
    for drift in drifts:
        print(f"{outcomes.get(drift.description, Repair.IMPOSSIBLE).value}: {drift.description}")
    is_done = len(outcomes) == len(drifts) and set(outcomes.values()) <= {Repair.DONE}
    return 0 if is_done else 2


def _repair_all(runtime: Runtime, drifts: Sequence[Drift]) -> dict[str, Repair]:
    """Repair what is safe to repair; return the results by the description of the drift.

    A second audit finds out which repairs had an effect.
    """
    outcomes = {drift.description: _repair(runtime, drift) for drift in drifts}
    if Repair.DONE in outcomes.values():
        for drift in cloud.audit(runtime):
            if outcomes.get(drift.description) is Repair.DONE:
                LOG.error("the repair had no effect: %s", drift.description)
                outcomes[drift.description] = Repair.IMPOSSIBLE
    return outcomes


def _repair(runtime: Runtime, drift: Drift) -> Repair:
    try:
        return cloud.repair(runtime, drift)
    except ClimateError as error:
        LOG.error("not repaired: %s", error.message)  # noqa: TRY400 - the message suffices
        return Repair.IMPOSSIBLE
