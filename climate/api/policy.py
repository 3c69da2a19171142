"""Who may do what: oslo.policy rules with Blazar's defaults, overridable in policy.yaml.

All are about what a project has, so a token for a domain or for the system satisfies none.
"""

from collections.abc import Mapping

from oslo_config.cfg import ConfigOpts
from oslo_policy import policy

from climate.api.auth import Caller
from climate.config.registry import Misconfigured
from climate.core.errors import Forbidden

_READER = "rule:project_reader_or_admin"
_MEMBER = "rule:project_member_or_admin"
_ADMIN = "rule:admin"
_SUBSCRIPTION = "/v2/subscriptions/{subscription_id}"
_PROVISIONER = "rule:provisioner"

_ROLES = [
    policy.RuleDefault("admin", "role:admin", "Operators of the service."),
    policy.RuleDefault("provisioner", "rule:admin", "Those who get hosts ready."),
    policy.RuleDefault(
        "project_member_or_admin",
        "rule:admin or (role:member and project_id:%(project_id)s)",
        "Those who may change what their project has.",
    ),
    policy.RuleDefault(
        "project_reader_or_admin",
        "rule:admin or (role:reader and project_id:%(project_id)s)"
        " or (role:member and project_id:%(project_id)s)",
        "Those who may see what their project has.",
    ),
]
# rule, default, method and path in v1 (or where there is none, v2), what it allows
_TABLE = [
    ("leases:get", _READER, "GET", "/v1/leases", "See leases."),
    ("leases:get_all", _ADMIN, "GET", "/v1/leases", "See the leases of all projects."),
    ("leases:post", _MEMBER, "POST", "/v1/leases", "Make a lease."),
    ("leases:put", _MEMBER, "PUT", "/v1/leases/{lease_id}", "Change a lease."),
    ("leases:delete", _MEMBER, "DELETE", "/v1/leases/{lease_id}", "Remove a lease."),
    ("plugins:get", _READER, "GET", "/v1/plugins", "See which resource types are served."),
    ("oshosts:get", _ADMIN, "GET", "/v1/os-hosts", "See hosts."),
    ("oshosts:post", _ADMIN, "POST", "/v1/os-hosts", "Make a host reservable."),
    ("oshosts:put", _ADMIN, "PUT", "/v1/os-hosts/{host_id}", "Change a host's capabilities."),
    ("oshosts:delete", _ADMIN, "DELETE", "/v1/os-hosts/{host_id}", "Remove a host."),
    ("oshosts:get_allocations", _ADMIN, "GET", "/v1/os-hosts/allocations", "See who has what."),
    (
        "oshosts:get_resource_properties",
        _ADMIN,
        "GET",
        "/v1/os-hosts/properties",
        "See which capabilities hosts have.",
    ),
    (
        "oshosts:update_resource_properties",
        _ADMIN,
        "PATCH",
        "/v1/os-hosts/properties/{name}",
        "Hide or show a capability.",
    ),
    ("floatingips:get", _READER, "GET", "/v1/floatingips", "See addresses."),
    ("floatingips:post", _ADMIN, "POST", "/v1/floatingips", "Make an address reservable."),
    (
        "floatingips:delete",
        _ADMIN,
        "DELETE",
        "/v1/floatingips/{floatingip_id}",
        "Remove an address.",
    ),
    ("networks:get", _ADMIN, "GET", "/v1/networks", "See segments."),
    ("networks:post", _ADMIN, "POST", "/v1/networks", "Make a segment reservable."),
    ("networks:delete", _ADMIN, "DELETE", "/v1/networks/{network_id}", "Remove a segment."),
    ("resources:get", _READER, "GET", "/v2/resources", "See what can be reserved."),
    ("resources:get_private", _ADMIN, "GET", "/v2/resources", "See private properties, too."),
    ("resources:post", _ADMIN, "POST", "/v2/resources", "Make something reservable."),
    (
        "resources:delete",
        _ADMIN,
        "DELETE",
        "/v2/resources/{resource_id}",
        "Have something reservable no more.",
    ),
    ("availability:get", _READER, "GET", "/v2/availability", "See how much is free when."),
    ("limits:get", _READER, "GET", "/v2/limits", "See one's limits."),
    ("notifications:get", _READER, "GET", "/v2/notifications", "Read one's notifications."),
    ("notifications:get_all", _ADMIN, "GET", "/v2/notifications", "Read all notifications."),
    ("subscriptions:get", _MEMBER, "GET", "/v2/subscriptions", "See one's subscriptions."),
    ("subscriptions:get_all", _ADMIN, "GET", "/v2/subscriptions", "See those of all projects."),
    ("subscriptions:post", _MEMBER, "POST", "/v2/subscriptions", "Subscribe."),
    ("subscriptions:put", _MEMBER, "PATCH", _SUBSCRIPTION, "Change a subscription."),
    ("subscriptions:delete", _MEMBER, "DELETE", _SUBSCRIPTION, "Remove a subscription."),
    ("preparations:get", _PROVISIONER, "GET", "/v2/preparations", "See hosts to be got ready."),
    (
        "preparations:report",
        _PROVISIONER,
        "POST",
        "/v2/preparations/{preparation_id}/report",
        "Say how far one is with a host.",
    ),
    ("shutdowns:get", _PROVISIONER, "GET", "/v2/shutdowns", "See hosts to be switched off."),
    (
        "shutdowns:report",
        _PROVISIONER,
        "POST",
        "/v2/shutdowns/{shutdown_id}/report",
        "Say how far one is with switching a host off.",
    ),
    ("readiness:get", _PROVISIONER, "GET", "/v2/readiness", "See how ready hosts are and were."),
    (
        "readiness:put",
        _ADMIN,
        "PATCH",
        "/v2/resources/{resource_id}/readiness",
        "Set hosts aside, and take them back.",
    ),
]

# What an operator forbids in v1 is forbidden in v2: both go by one rule.
_ALSO = {
    "leases:get": [
        ("GET", "/v2/leases"),
        ("GET", "/v2/leases/{lease_id}"),
        ("GET", "/v2/leases/{lease_id}/readiness"),
    ],
    "leases:get_all": [("GET", "/v2/leases?all_projects=true")],
    "leases:post": [("POST", "/v2/leases")],
    "leases:put": [("PATCH", "/v2/leases/{lease_id}")],
    "leases:delete": [("DELETE", "/v2/leases/{lease_id}")],
    "resources:get": [("GET", "/v2/resources/{resource_id}")],
    "availability:get": [("POST", "/v2/availability/search")],
    "notifications:get": [("GET", "/v2/notifications/stream")],
    "subscriptions:get": [
        ("GET", _SUBSCRIPTION),
        ("GET", f"{_SUBSCRIPTION}/dead-letters"),
    ],
    "subscriptions:put": [("POST", f"{_SUBSCRIPTION}/redeliver")],
    "preparations:get": [("GET", "/v2/preparations/{preparation_id}")],
    "shutdowns:get": [("GET", "/v2/shutdowns/{shutdown_id}")],
    "readiness:get": [
        ("GET", "/v2/readiness/energy"),
        ("GET", "/v2/resources/{resource_id}/readiness"),
    ],
}


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules with their defaults, also for oslopolicy-sample-generator."""
    return _ROLES + [
        policy.DocumentedRuleDefault(
            f"climate:{name}",
            check,
            text,
            [
                {"method": method, "path": path}
                for method, path in [(method, path), *_ALSO.get(name, [])]
            ],
            scope_types=["project"],
        )
        for name, check, method, path, text in _TABLE
    ]


class Policy:
    """The rules in force."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the policy file that ``conf`` names, if there is one; raises Misconfigured."""
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(list_rules())
        try:
            self._enforcer.load_rules()
        except Exception as error:  # malformed YAML, a rule that does not parse, no permission
            raise Misconfigured(f"the policy file cannot be used: {error}") from error

    def allows(self, caller: Caller, rule: str, project_id: str) -> bool:
        """Tell whether ``caller`` may do what ``rule`` is about to ``project_id``'s things."""
        target: Mapping[str, str] = {"project_id": project_id}
        return bool(self._enforcer.authorize(f"climate:{rule}", target, caller.credentials()))

    def require(self, caller: Caller, rule: str, project_id: str) -> None:
        """Raise Forbidden unless ``caller`` may."""
        if not self.allows(caller, rule, project_id):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.")
