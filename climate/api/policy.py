"""Authorization: oslo.policy rules with Blazar's defaults, which policy.yaml can override.

All rules require a token for a project. A token for a domain or for the system satisfies no rule.
"""

from collections.abc import Callable
from functools import lru_cache

from oslo_config.cfg import ConfigOpts
from oslo_policy import policy

from climate.api.auth import Caller
from climate.config.registry import Misconfigured

_READER = "rule:project_reader_or_admin"
_MEMBER = "rule:project_member_or_admin"
_ADMIN = "rule:admin"
_SELF = "rule:project_user_or_admin"
_PROVISIONER = "rule:provisioner"

_ROLES = [
    policy.RuleDefault("admin", "role:admin", "Operators of the service."),
    policy.RuleDefault(
        "provisioner", "rule:admin", "Provisioners, which prepare hosts for leases."
    ),
    policy.RuleDefault(
        "project_member_or_admin",
        "rule:admin or (role:member and project_id:%(project_id)s)",
        "Callers who may change the objects of their project.",
    ),
    policy.RuleDefault(
        "project_reader_or_admin",
        "rule:admin or (role:reader and project_id:%(project_id)s)"
        " or (role:member and project_id:%(project_id)s)",
        "Callers who may read the objects of their project.",
    ),
    policy.RuleDefault(
        "project_user_or_admin",
        "rule:admin or project_id:%(project_id)s",
        "Callers in their project, with any role or none.",
    ),
]
# Who satisfies a role rule, for messages.
_WHO = {
    "admin": "the role admin",
    "provisioner": "the role admin",
    "project_member_or_admin": "the role member in the project, or the role admin",
    "project_reader_or_admin": "the role reader or member in the project, or the role admin",
    "project_user_or_admin": "a role in the project, or the role admin",
}
# rule, default, what it allows
_TABLE = [
    ("me:get", _SELF, "Read who you are, and what you may do."),
    ("leases:get", _READER, "Read leases."),
    ("leases:get_all", _ADMIN, "Read the leases of all projects."),
    ("leases:post", _MEMBER, "Create a lease."),
    ("leases:put", _MEMBER, "Change a lease."),
    ("leases:delete", _MEMBER, "Delete a lease."),
    ("reservations:start", _MEMBER, "Start a reservation with on_start manual."),
    ("reservations:stop", _MEMBER, "Stop a reservation with on_start manual."),
    ("wait_list:get", _READER, "Read the wait list, own leases named."),
    ("plugins:get", _READER, "List the resource types."),
    ("oshosts:get", _ADMIN, "Read hosts."),
    ("oshosts:post", _ADMIN, "Make a host reservable."),
    ("oshosts:put", _ADMIN, "Change a host's capabilities."),
    ("oshosts:delete", _ADMIN, "Remove a host."),
    ("oshosts:get_allocations", _ADMIN, "Read the allocations of hosts."),
    ("oshosts:get_resource_properties", _ADMIN, "Read the capabilities of hosts."),
    ("oshosts:update_resource_properties", _ADMIN, "Hide or show a capability."),
    ("floatingips:get", _READER, "Read addresses."),
    ("floatingips:post", _ADMIN, "Make an address reservable."),
    ("floatingips:delete", _ADMIN, "Remove an address."),
    ("networks:get", _ADMIN, "Read segments."),
    ("networks:post", _ADMIN, "Make a segment reservable."),
    ("networks:delete", _ADMIN, "Remove a segment."),
    ("resources:get", _READER, "Read resources."),
    ("resources:get_private", _ADMIN, "Read private properties of resources."),
    ("resources:get_bookings", _ADMIN, "Read who holds a resource, and when."),
    ("resources:post", _ADMIN, "Make a resource reservable."),
    ("resources:put", _ADMIN, "Change the properties of a resource."),
    ("resources:put_stats", _ADMIN, "Push the stats of resources."),
    ("resources:delete", _ADMIN, "Remove a resource."),
    ("availability:get", _READER, "Read and search the free capacity."),
    ("managers:get", _ADMIN, "Read which managers run, and how late they are."),
    ("events:get", _ADMIN, "Read the overdue events of all leases, and why they wait."),
    ("calendar:get", _READER, "Read what resources are occupied by, own leases named."),
    ("calendar:get_all", _ADMIN, "Read the names and projects of all leases in the calendar."),
    ("utilisation:get", _ADMIN, "Read how much of the capacity leases use."),
    ("limits:get", _READER, "Read your limits."),
    ("limits:get_all", _ADMIN, "Read the limits of all projects and users."),
    ("notifications:get", _READER, "Read the notifications of your project."),
    ("notifications:get_all", _ADMIN, "Read the notifications of all projects."),
    ("subscriptions:get", _MEMBER, "Read the subscriptions of your project."),
    ("subscriptions:get_all", _ADMIN, "Read the subscriptions of all projects."),
    ("subscriptions:post", _MEMBER, "Create a subscription."),
    ("subscriptions:post_email", _MEMBER, "Create a subscription by e-mail."),
    ("subscriptions:put", _MEMBER, "Change a subscription."),
    ("subscriptions:delete", _MEMBER, "Delete a subscription."),
    ("feeds:get", _MEMBER, "Read the calendar feeds of your project."),
    ("feeds:get_all", _ADMIN, "Read the calendar feeds of all projects."),
    ("feeds:post", _MEMBER, "Create a calendar feed."),
    ("feeds:delete", _MEMBER, "Revoke a calendar feed that you created."),
    ("feeds:delete_all", _ADMIN, "Revoke calendar feeds that other users created."),
    ("preparations:get", _PROVISIONER, "Read preparations."),
    ("preparations:report", _PROVISIONER, "Report the progress of a preparation."),
    ("shutdowns:get", _PROVISIONER, "Read shutdowns."),
    ("shutdowns:report", _PROVISIONER, "Report the progress of a shutdown."),
    ("readiness:get", _PROVISIONER, "Read the readiness of hosts, and statistics."),
    ("readiness:put", _ADMIN, "Quarantine a host, or end its quarantine."),
]
RULES = _ROLES + [
    policy.RuleDefault(f"climate:{name}", check, text, scope_types=["project"])
    for name, check, text in _TABLE
]


# Seconds for which to reuse rules and decisions. For each decision, oslo.policy searches for policy
# files and inspects the signatures of checks: a quarter of the processor time of a request.
_REUSE = 1.0
_MAX_DECISIONS = 4096
# The ids of a caller's user and project, the caller's roles, and those of a forwarding service.
_Credentials = tuple[str, str, tuple[str, ...], tuple[str, ...]]


class _Enforcer(policy.Enforcer):
    """oslo.policy's enforcer, which looks for changed policy files at most once a second.

    It also reuses its decisions for this second, by rule, project and credentials.
    """

    def __init__(self, conf: ConfigOpts, elapsed: Callable[[], float]) -> None:
        """Prepare to read the policy files that ``conf`` names.

        ``elapsed`` returns the seconds of a monotonic clock.
        """
        super().__init__(conf)
        self._elapsed, self._fresh_until = elapsed, 0.0
        self.decide = lru_cache(_MAX_DECISIONS)(self._decide)

    def load_rules(self, force_reload: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the base class
        """Read the policy files if they have changed, and forget all decisions."""
        now = self._elapsed()
        if force_reload or now >= self._fresh_until:
            self._fresh_until = now + _REUSE
            super().load_rules(force_reload)
            self.decide.cache_clear()

    def _decide(self, rule: str, project_id: str, credentials: _Credentials) -> bool:
        user_id, own_project_id, roles, service_roles = credentials
        caller: dict[str, object] = {
            "user_id": user_id,
            "project_id": own_project_id,
            "roles": [*roles],
            "service_roles": [*service_roles],
        }
        return bool(self.authorize(f"climate:{rule}", {"project_id": project_id}, caller))


class Policy:
    """The policy in effect: climate's default rules, with the changes in the policy file."""

    def __init__(self, conf: ConfigOpts, elapsed: Callable[[], float]) -> None:
        """Read the policy file that ``conf`` names, if it exists.

        ``elapsed`` returns the seconds of a monotonic clock. Raises Misconfigured if the file is
        malformed or unreadable.
        """
        self._enforcer = _Enforcer(conf, elapsed)
        self._enforcer.register_defaults(RULES)
        try:
            self._enforcer.load_rules()
        except Exception as error:  # malformed YAML, a rule that does not parse, no permission
            raise Misconfigured(f"the policy file cannot be used: {error}") from error

    def allows(self, caller: Caller, rule: str, project_id: str) -> bool:
        """Return whether ``rule`` allows ``caller`` to act on objects of a project.

        ``project_id`` is the id of the project that owns the objects. A change of the policy file
        takes effect within about a second.
        """
        self._enforcer.load_rules()
        credentials = (caller.user_id, caller.project_id, caller.roles, caller.service_roles)
        return self._enforcer.decide(rule, project_id, credentials)

    def explanation(self, rule: str) -> str:
        """Return why a caller may not do what ``rule`` allows: what it is, and who may do it."""
        [description] = (text for name, _, text in _TABLE if name == rule)
        what = f"{description[:1].lower()}{description[1:].rstrip('.')}"
        return f"You may not {what}: the policy rule climate:{rule} requires {self._who(rule)}"

    def _who(self, rule: str) -> str:
        """Return who satisfies ``rule`` now.

        If the operator has changed the meaning of the roles, the result is the expression of the
        rule, such as ``role:operator``.
        """
        check = str(self._enforcer.rules[f"climate:{rule}"])
        changed = {
            row.name for row in _ROLES if str(self._enforcer.rules[row.name]) != str(row.check)
        }
        role = check.removeprefix("rule:")
        return check if changed & {role, "admin"} else _WHO.get(role, check)
