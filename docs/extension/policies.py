"""The reference of policy rules, with their defaults and routes."""

from oslo_policy.policy import DocumentedRuleDefault

from climate.api.app import list_rules
from docs.extension.markdown import code, table


def markdown() -> str:
    """Return a table of the rules for roles, and a table of the rules for requests."""
    rules = list_rules()
    roles = [rule for rule in rules if not isinstance(rule, DocumentedRuleDefault)]
    requests = [rule for rule in rules if isinstance(rule, DocumentedRuleDefault)]
    return "\n".join(
        [
            table(
                ["Rule", "Default", "Who"],
                ([code(rule.name), code(rule.check_str), rule.description or ""] for rule in roles),
            ),
            table(
                ["Rule", "Default", "Allows", "Routes"],
                (
                    [code(rule.name), code(rule.check_str), rule.description, _routes(rule)]
                    for rule in requests
                ),
            ),
        ]
    )


def _routes(rule: DocumentedRuleDefault) -> str:
    return ", ".join(code(f"{route['method']} {route['path']}") for route in rule.operations)
