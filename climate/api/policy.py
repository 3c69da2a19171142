"""Authorization: oslo.policy rules with Blazar's defaults, which policy.yaml can override.

All rules require a token for a project. A token for a domain or for the system satisfies no rule.
"""

from collections.abc import Mapping

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


class Policy:
    """The policy in effect: climate's default rules, with the changes in the policy file."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the policy file that ``conf`` names, if it exists.

        Raises Misconfigured if the file is malformed or unreadable.
        """
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(RULES)
        try:
            self._enforcer.load_rules()
        except Exception as error:  # malformed YAML, a rule that does not parse, no permission
            raise Misconfigured(f"the policy file cannot be used: {error}") from error

    def allows(self, caller: Caller, rule: str, project_id: str) -> bool:
        """Return whether ``rule`` allows ``caller`` to act on objects of a project.

        ``project_id`` is the id of the project that owns the objects.
        """
        target: Mapping[str, str] = {"project_id": project_id}
        return bool(self._enforcer.authorize(f"climate:{rule}", target, caller.credentials()))

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
