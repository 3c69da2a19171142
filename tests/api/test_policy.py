"""The rules: Blazar's names, its defaults, and what an operator may say instead."""

from pathlib import Path

import pytest
from oslo_policy.policy import DocumentedRuleDefault

from climate import config
from climate.api.auth import Caller
from climate.api.policy import Policy, list_rules
from tests.process import write_config

READER = Caller("bob", "lab", ("reader",))
MEMBER = Caller("alice", "lab", ("member", "reader"))
ADMIN = Caller("boss", "ops", ("admin", "member", "reader"))
# Rule by rule, who may in lab; all but those about resources and notifications, and
# leases:get_all, are Blazar's.
WHO = {
    "leases:get": {READER, MEMBER, ADMIN},
    "leases:post": {MEMBER, ADMIN},
    "leases:put": {MEMBER, ADMIN},
    "leases:delete": {MEMBER, ADMIN},
    "leases:get_all": {ADMIN},
    "oshosts:get": {ADMIN},
    "oshosts:post": {ADMIN},
    "oshosts:put": {ADMIN},
    "oshosts:delete": {ADMIN},
    "oshosts:get_allocations": {ADMIN},
    "oshosts:get_resource_properties": {ADMIN},
    "oshosts:update_resource_properties": {ADMIN},
    "floatingips:get": {READER, MEMBER, ADMIN},
    "floatingips:post": {ADMIN},
    "floatingips:delete": {ADMIN},
    "networks:get": {ADMIN},
    "networks:post": {ADMIN},
    "networks:delete": {ADMIN},
    "resources:get": {READER, MEMBER, ADMIN},
    "resources:post": {ADMIN},
    "resources:delete": {ADMIN},
    "limits:get": {READER, MEMBER, ADMIN},
    "availability:get": {READER, MEMBER, ADMIN},
    "resources:get_private": {ADMIN},
    "plugins:get": {READER, MEMBER, ADMIN},
    "notifications:get": {READER, MEMBER, ADMIN},
    "notifications:get_all": {ADMIN},
    "subscriptions:get": {MEMBER, ADMIN},
    "subscriptions:get_all": {ADMIN},
    "subscriptions:post": {MEMBER, ADMIN},
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


def policy(tmp_path: Path, text: str = "") -> Policy:
    """Return the policy with a file that says ``text``."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    path = write_config(tmp_path / "climate.conf", oslo_policy__policy_file=file)
    conf = config.new()
    config.load(conf, "test", [f"--config-file={path}"])
    return Policy(conf)


def test_every_rule_is_about_what_a_project_has() -> None:
    assert {rule.name.removeprefix("climate:") for rule in RULES} == set(WHO)
    assert all(rule.scope_types == ["project"] for rule in RULES)


@pytest.mark.parametrize("rule", WHO)
def test_who_may_by_default(rule: str, tmp_path: Path) -> None:
    rules = policy(tmp_path)
    assert {who for who in (READER, MEMBER, ADMIN) if rules.allows(who, rule, "lab")} == WHO[rule]
    elsewhere = {who for who in (READER, MEMBER, ADMIN) if rules.allows(who, rule, "other")}
    assert elsewhere == {ADMIN}


def test_a_file_says_otherwise(tmp_path: Path) -> None:
    rules = policy(tmp_path, '"climate:oshosts:get": "rule:project_member_or_admin"')
    assert rules.allows(MEMBER, "oshosts:get", "lab")
    assert not rules.allows(READER, "oshosts:get", "lab")


def test_a_rule_may_ask_which_service_passed_the_request_on(tmp_path: Path) -> None:
    rules = policy(tmp_path, '"climate:leases:post": "service_roles:service"')
    assert not rules.allows(ADMIN, "leases:post", "lab")
    by_heat = Caller("alice", "lab", ("member",), service_roles=("service",))
    assert rules.allows(by_heat, "leases:post", "lab")
