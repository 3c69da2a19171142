"""Access rules: Blazar's names and defaults, and overrides by the operator."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from oslo_policy.policy import DocumentedRuleDefault

from climate.api.app import list_rules
from climate.api.auth import Caller
from climate.api.policy import Policy
from climate.config import registry as config_registry
from tests.support.process import write_config

READER = Caller("bob", "lab", ("reader",))
MEMBER = Caller("alice", "lab", ("member", "reader"))
ADMIN = Caller("boss", "ops", ("admin", "member", "reader"))
ALL_ROLES = {READER, MEMBER, ADMIN}
# The callers that each rule allows in the project lab. All but those about resources and
# notifications, and leases:get_all, are Blazar's.
ALLOWED = {
    "me:get": ALL_ROLES,
    "leases:get": ALL_ROLES,
    "leases:post": {MEMBER, ADMIN},
    "leases:put": {MEMBER, ADMIN},
    "leases:delete": {MEMBER, ADMIN},
    "leases:get_all": {ADMIN},
    "reservations:start": {MEMBER, ADMIN},
    "reservations:stop": {MEMBER, ADMIN},
    "oshosts:get": {ADMIN},
    "oshosts:post": {ADMIN},
    "oshosts:put": {ADMIN},
    "oshosts:delete": {ADMIN},
    "oshosts:get_allocations": {ADMIN},
    "oshosts:get_resource_properties": {ADMIN},
    "oshosts:update_resource_properties": {ADMIN},
    "floatingips:get": ALL_ROLES,
    "floatingips:post": {ADMIN},
    "floatingips:delete": {ADMIN},
    "networks:get": {ADMIN},
    "networks:post": {ADMIN},
    "networks:delete": {ADMIN},
    "resources:get": ALL_ROLES,
    "resources:post": {ADMIN},
    "resources:put": {ADMIN},
    "resources:put_stats": {ADMIN},
    "resources:delete": {ADMIN},
    "limits:get": ALL_ROLES,
    "limits:get_all": {ADMIN},
    "managers:get": {ADMIN},
    "events:get": {ADMIN},
    "availability:get": ALL_ROLES,
    "calendar:get": ALL_ROLES,
    "calendar:get_all": {ADMIN},
    "utilisation:get": {ADMIN},
    "resources:get_private": {ADMIN},
    "resources:get_bookings": {ADMIN},
    "plugins:get": ALL_ROLES,
    "wait_list:get": ALL_ROLES,
    "notifications:get": ALL_ROLES,
    "notifications:get_all": {ADMIN},
    "feeds:get": {MEMBER, ADMIN},
    "feeds:get_all": {ADMIN},
    "feeds:post": {MEMBER, ADMIN},
    "feeds:delete": {MEMBER, ADMIN},
    "feeds:delete_all": {ADMIN},
    "subscriptions:get": {MEMBER, ADMIN},
    "subscriptions:get_all": {ADMIN},
    "subscriptions:post": {MEMBER, ADMIN},
    "subscriptions:post_email": {MEMBER, ADMIN},
    "subscriptions:put": {MEMBER, ADMIN},
    "subscriptions:delete": {MEMBER, ADMIN},
    "preparations:get": {ADMIN},
    "preparations:report": {ADMIN},
    "shutdowns:get": {ADMIN},
    "shutdowns:report": {ADMIN},
    "readiness:get": {ADMIN},
    "readiness:put": {ADMIN},
}
RULES = [rule for rule in list_rules() if isinstance(rule, DocumentedRuleDefault)]


def policy(tmp_path: Path, text: str = "", elapsed: Callable[[], float] = time.monotonic) -> Policy:
    """Return the policy with a file that contains ``text``."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    path = write_config(tmp_path / "climate.conf", oslo_policy__policy_file=file)
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    return Policy(conf, elapsed)


def test_every_rule_is_known_and_of_project_scope() -> None:
    assert {rule.name.removeprefix("climate:") for rule in RULES} == set(ALLOWED)
    assert all(rule.scope_types == ["project"] for rule in RULES)


def test_each_rule_allows_exactly_its_callers_by_default(tmp_path: Path) -> None:
    rules = policy(tmp_path)

    def allowed(rule: str, project: str) -> set[Caller]:
        return {caller for caller in ALL_ROLES if rules.allows(caller, rule, project)}

    assert {rule: allowed(rule, "lab") for rule in ALLOWED} == ALLOWED
    assert [rule for rule in ALLOWED if allowed(rule, "other") != {ADMIN}] == []


def test_a_policy_file_overrides_a_rule(tmp_path: Path) -> None:
    rules = policy(tmp_path, '"climate:oshosts:get": "rule:project_member_or_admin"')
    assert rules.allows(MEMBER, "oshosts:get", "lab")
    assert not rules.allows(READER, "oshosts:get", "lab")


def test_a_change_of_the_policy_file_takes_effect_after_a_second(tmp_path: Path) -> None:
    seconds = [0.0]
    rules = policy(tmp_path, elapsed=lambda: seconds[0])
    assert not rules.allows(READER, "leases:post", "lab")
    file = tmp_path / "policy.yaml"
    file.write_text('"climate:leases:post": "role:reader"')
    os.utime(file, (2**31, 2**31))  # oslo.policy compares times of change, which may be equal
    assert not rules.allows(READER, "leases:post", "lab")
    seconds[0] = 1.5
    assert rules.allows(READER, "leases:post", "lab")


def test_explains_who_may_do_what(tmp_path: Path) -> None:
    def reason(text: str = "") -> str:
        return policy(tmp_path, text).explanation("leases:get_all")

    assert reason() == (
        "You may not read the leases of all projects: the policy rule climate:leases:get_all"
        " requires the role admin"
    )
    assert reason('"climate:leases:get_all": "role:support"').endswith("requires role:support")
    # The words for a role are those of its default.
    assert reason('"admin": "role:root"').endswith("requires rule:admin")
    assert all(policy(tmp_path).explanation(rule) for rule in ALLOWED)


def test_a_rule_may_require_the_role_of_a_forwarding_service(tmp_path: Path) -> None:
    rules = policy(tmp_path, '"climate:leases:post": "service_roles:service"')
    assert not rules.allows(ADMIN, "leases:post", "lab")
    by_heat = Caller("alice", "lab", ("member",), service_roles=("service",))
    assert rules.allows(by_heat, "leases:post", "lab")
