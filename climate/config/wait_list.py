"""The options of ``[wait_list]``: leases that wait for capacity."""

from datetime import timedelta

from oslo_config import cfg

from climate.core.lease.wait_list import WaitListRules

WAIT_LIST: list[cfg.Opt] = [
    cfg.IntOpt(
        "promises",
        default=4,
        min=0,
        max=1000,
        help="Number of waiting leases of each resource type that have a booking in the future. Its"
        " start only moves to earlier times. 0: none, so that wide leases may wait for ever.",
    ),
    cfg.BoolOpt(
        "backfill",
        default=True,
        help="Whether waiting leases may start before others that wait longer, if they delay no"
        " promised booking.",
    ),
    cfg.StrOpt(
        "promise",
        default="firm",
        choices=["firm", "soft"],
        help="Whether requests with a fixed start may take the place of a promised booking. firm:"
        " no, it is a booking like any other. soft: yes, and that lease then waits again, with its"
        " old place in the list.",
    ),
    cfg.IntOpt(
        "priority_worth",
        default=24 * 3600,
        min=0,
        max=366 * 24 * 3600,
        help="Seconds of waiting that one level of priority is worth.",
    ),
]


def wait_list_rules(conf: cfg.ConfigOpts) -> WaitListRules:
    """Return the configured rules of the wait list."""
    group = conf.wait_list
    return WaitListRules(
        promises=group.promises,
        backfills=group.backfill,
        is_firm=group.promise == "firm",
        priority_worth=timedelta(seconds=group.priority_worth),
    )
