"""Template rewriting at any depth: wrapped flavors, groups at their maximum, adoption."""

import json
from typing import Any

from climate.plugins.stacks import template as stack_template
from climate.plugins.stacks.template import Source

FLAVORS = {"m1.tiny": "1", "1": "m1.tiny"}


def server(flavor: Any) -> dict[str, Any]:
    return {"type": "OS::Nova::Server", "properties": {"flavor": flavor}}


def hot(**resources: Any) -> dict[str, Any]:
    return {"heat_template_version": "2016-10-14", "resources": resources}


def wrapped(flavor: Any) -> dict[str, Any]:
    whole = {"str_replace": {"template": "<value>", "params": {"value": flavor}}}
    return {"str_replace": {"template": whole, "params": {"<m1.tiny>": "1", "<1>": "m1.tiny"}}}


def test_every_flavor_is_wrapped_wherever_its_server_is_defined() -> None:
    parameter = {"get_param": "flavor"}
    inner = {"type": "OS::Heat::ResourceGroup", "properties": {"resource_def": server(parameter)}}
    group = {"type": "OS::Heat::AutoScalingGroup", "properties": {"resource": inner}}
    nested = json.dumps(hot(one=server("m1.tiny")))
    source = Source(hot(plain=server(1), group=group), {"a.yaml": nested, "run.sh": "#!/bin/sh"})
    edited = stack_template.edited(source, stack_template.with_flavors(FLAVORS))
    resources = edited.template["resources"]
    assert resources["plain"] == server(wrapped(1))
    deep = resources["group"]["properties"]["resource"]["properties"]["resource_def"]
    assert deep == server(wrapped(parameter))
    assert json.loads(edited.files["a.yaml"])["resources"]["one"] == server(wrapped("m1.tiny"))
    assert edited.files["run.sh"] == "#!/bin/sh"
    assert source.template["resources"]["plain"] == server(1)


def test_resolves_type_aliases_of_the_environment() -> None:
    vm = {**server("m1.tiny"), "type": "VM"}
    environment = {"resource_registry": {"VM": "OS::Nova::Server"}}
    source = Source(hot(one=vm), environment=environment)
    edited = stack_template.edited(source, stack_template.with_flavors(FLAVORS))
    assert edited.template["resources"]["one"]["properties"]["flavor"] == wrapped("m1.tiny")


def test_wraps_flavors_in_cloudformation_templates() -> None:
    resource = {"Type": "AWS::EC2::Instance", "Properties": {"InstanceType": "m1.tiny"}}
    source = Source({"AWSTemplateFormatVersion": "2010-09-09", "Resources": {"one": resource}})
    edited = stack_template.edited(source, stack_template.with_flavors({"m1.tiny": "1"}))
    inner = {"Fn::Replace": [{"value": "m1.tiny"}, "<value>"]}
    wanted = {"Fn::Replace": [{"<m1.tiny>": "1"}, inner]}
    assert edited.template["Resources"]["one"]["Properties"] == {"InstanceType": wanted}


def test_sizes_groups_at_their_maximum() -> None:
    largest = {"get_param": "most"}
    group = {"min_size": 1, "max_size": largest, "resource": server("m1.tiny")}
    source = Source(hot(group={"type": "OS::Heat::AutoScalingGroup", "properties": group}))
    edited = stack_template.edited(source, stack_template.at_maximum)
    properties = edited.template["resources"]["group"]["properties"]
    assert (properties["min_size"], properties["desired_capacity"]) == (largest, largest)


def test_an_adopted_floating_ip_gets_an_association_resource() -> None:
    properties = {"floating_network": "public", "port_id": {"get_resource": "port"}}
    address = {"type": "OS::Neutron::FloatingIP", "properties": properties}
    source = Source(hot(address=address))
    assert stack_template.adoptable(source.template) == ["address"]
    resources = stack_template.adopting(source, {"address": "fip"}).template["resources"]
    assert resources["address"] == {"type": "OS::Neutron::FloatingIP", "external_id": "fip"}
    assert resources["address_at_its_port"]["properties"] == {
        "floatingip_id": "fip",
        "port_id": {"get_resource": "port"},
    }


def test_templates_too_old_for_external_ids_adopt_nothing() -> None:
    template = {
        **hot(one={"type": "OS::Neutron::FloatingIP"}),
        "heat_template_version": "2015-10-15",
    }
    assert stack_template.adoptable(template) == []


def test_restores_what_users_made_of_an_edited_copy() -> None:
    disk = {"volume_size": 1, "boot_index": 0}
    inner = {"type": "OS::Heat::ResourceGroup", "properties": {"resource_def": server("m1.tiny")}}
    address = {"type": "OS::Neutron::FloatingIP", "properties": {"port_id": "a"}}
    big = {"type": "OS::Nova::Server", "properties": {"block_device_mapping_v2": [disk]}}
    volume = {"type": "OS::Cinder::Volume", "properties": {"size": 1, "volume_type": "gold"}}
    template = hot(one=server("m1.tiny"), all=inner, ip=address, big=big, volume=volume)
    nested = "heat_template_version: 2016-10-14\nresources: {one: {type: OS::Nova::Server}}\n"
    original = Source(template, {"a.yaml": nested, "run.sh": "#!/bin/sh"})
    edits = (
        stack_template.with_flavors(FLAVORS),
        stack_template.with_volume_types({"gold": "reserved-1"}, "reserved-2"),
    )
    copy = original
    for edit in edits:
        copy = stack_template.edited(copy, edit)
    copy = stack_template.adopting(copy, {"ip": "fip"})
    types = {"reserved-1", "reserved-2"}
    assert stack_template.restored(copy, original, types) == original
    resources = {**copy.template["resources"], "two": server("m1.small")}
    del resources["all"]
    users = Source({**copy.template, "resources": resources}, copy.files, {"more": 1})
    mine = {**template["resources"], "two": server("m1.small")}
    del mine["all"]
    assert stack_template.restored(users, original, types) == Source(
        {**template, "resources": mine}, original.files, {"more": 1}
    )


def test_keeps_what_users_changed_of_an_adopted_address() -> None:
    address = {"type": "OS::Neutron::FloatingIP", "properties": {"port_id": "a"}}
    original = Source(hot(ip=address))
    copy = stack_template.adopting(original, {"ip": "fip"})
    resources = json.loads(json.dumps(copy.template["resources"]))
    resources["ip_at_its_port"]["properties"]["port_id"] = "b"
    users = Source({**copy.template, "resources": resources})
    assert stack_template.restored(users, original, set()) == users


def test_the_normal_form_ignores_what_heat_adds_to_an_environment() -> None:
    added = {"resource_registry": {"resources": {}}, "parameter_defaults": {}, "event_sinks": []}
    assert Source(hot(), environment=added).normal == Source(hot()).normal
