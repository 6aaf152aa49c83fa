# SPDX-License-Identifier: Apache-2.0
"""Runs the real openstacksdk through all parts of the API.

    openstacksdk_client.py URL

The calls are those of provisioning tools; the SDK's own waiting is used where it has one. The first
difference ends the script with a traceback. Everything is removed at the end.
"""

import os
import sys
import time

import openstack
from openstack import exceptions

URL = sys.argv[1]
RUN = "sdk-%x" % (time.time_ns() // 1000000 % 2**32)
TIMEOUT = 60

auth = {"endpoint": URL}
if "OS_USERNAME" in os.environ:
    auth.update(username=os.environ["OS_USERNAME"], password=os.environ["OS_PASSWORD"])
metal = openstack.connect(
    load_yaml_config=False, load_envvars=False,
    auth_type="http_basic" if "username" in auth else "none", auth=auth,
    baremetal_endpoint_override=URL, region_name="here", baremetal_status_code_retries=0,
).baremetal


def check_equal(what, actual, expected):
    assert actual == expected, "%s is %r instead of %r" % (what, actual, expected)


def expect_error(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError("%s%r succeeded" % (call.__name__, arguments))


def provision(node, target, state, **more):
    """Requests a provision state and polls more often than the SDK, which polls every 2 s."""
    metal.set_node_provision_state(node, target, **more)
    deadline = time.monotonic() + TIMEOUT
    while True:
        now = metal.get_node(node.id)
        if now.provision_state == state and now.target_provision_state is None:
            return now
        assert time.monotonic() < deadline and not now.provision_state.endswith("failed"), \
            "%s: %s instead of %s: %s" % (target, now.provision_state, state, now.last_error)
        time.sleep(0.05)


def set_power(node, target, state):
    """Changes the power state and waits. The SDK's own wait checks only the state, which is the same
    before and after a reboot, so the next request would meet a locked node."""
    metal.set_node_power_state(node, target)
    metal.wait_for_node_power_state(node, state, timeout=TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while metal.get_node(node.id).target_power_state is not None:
        assert time.monotonic() < deadline, "%s takes too long" % target
        time.sleep(0.05)


def run_lifecycle():
    node = metal.create_node(
        driver="fake-hardware", name=RUN + "-life", resource_class=RUN,
        driver_info={"address": "bmc", "password": "secret"}, properties={"cpus": 8},
        extra={"rack": "r1"}, description="bought in may")
    check_equal("state", node.provision_state, "enroll")
    check_equal("password", metal.get_node(node.id).driver_info["password"], "******")
    expect_error(exceptions.ConflictException, metal.create_node, driver="fake-hardware", name=node.name)
    expect_error(exceptions.BadRequestException, metal.create_node, driver="no-such-driver")
    expect_error(exceptions.NotFoundException, metal.get_node, "no-such-node")
    expect_error(exceptions.BadRequestException, metal.set_node_provision_state, node, "provide")

    node = metal.set_node_provision_state(node, "manage", wait=True, timeout=TIMEOUT)
    check_equal("state", node.provision_state, "manageable")
    checked = metal.validate_node(node, required=("power", "deploy", "management"))
    assert checked["power"].result, checked
    node = metal.update_node(node, extra={"rack": "r2"}, description="moved")
    check_equal("extra", metal.get_node(node.id).extra, {"rack": "r2"})
    node = metal.patch_node(node, [{"op": "add", "path": "/extra/unit", "value": 7}])
    check_equal("extra", node.extra, {"rack": "r2", "unit": 7})
    expect_error(exceptions.BadRequestException, metal.patch_node, node,
            [{"op": "replace", "path": "/uuid", "value": RUN}])

    provision(node, "inspect", "manageable")
    provision(node, "clean", "manageable", clean_steps=[{"interface": "vendor", "step": "log_passthrough"}])
    provision(node, "provide", "available")
    node = metal.update_node(node, instance_info={
        "image_source": "http://127.0.0.1/image", "image_checksum": "0123456789abcdef0123456789abcdef"})
    provision(node, "active", "active", config_drive={"meta_data": {"hostname": "a"}})
    provision(node, "rebuild", "active")
    provision(node, "rescue", "rescue", rescue_password="rescue-password")
    provision(node, "unrescue", "active")
    provision(node, "deleted", "available")
    check_equal("found", [n.id for n in metal.nodes(resource_class=RUN, provision_state="available")], [node.id])
    check_equal("detailed", [n.description for n in metal.nodes(details=True, resource_class=RUN)], ["moved"])
    check_equal("fields", [n.name for n in metal.nodes(fields=["uuid", "name"], resource_class=RUN)], [node.name])

    for target, state in (("power on", "power on"), ("rebooting", "power on"), ("power off", "power off")):
        set_power(node, target, state)
    metal.set_node_maintenance(node, "new fan")
    check_equal("reason", metal.get_node(node.id).maintenance_reason, "new fan")
    metal.unset_node_maintenance(node)
    provision(node, "manage", "manageable")
    metal.delete_node(node)
    expect_error(exceptions.NotFoundException, metal.get_node, node.id)


def run_node_resources():
    node = metal.create_node(driver="fake-hardware", name=RUN + "-parts")
    provision(node, "manage", "manageable")
    mac = "52:54:%02x:%02x:%02x:%02x" % tuple(os.urandom(4))
    group = metal.create_port_group(node_id=node.id, name=RUN + "-bond", mode="802.3ad")
    port = metal.create_port(node_id=node.id, address=mac, is_pxe_enabled=True, port_group_id=group.id)
    check_equal("by address", [p.id for p in metal.ports(address=mac)], [port.id])
    check_equal("by node", [p.address for p in metal.ports(node_id=node.id)], [mac])
    metal.update_port(port, extra={"seen": True})
    check_equal("extra", metal.get_port(port.id).extra, {"seen": True})
    expect_error(exceptions.ConflictException, metal.create_port, node_id=node.id, address=mac)
    expect_error(exceptions.BadRequestException, metal.create_port, node_id=node.id, address="no address")

    metal.set_node_traits(node, ["CUSTOM_GOLD", "CUSTOM_SILVER"])
    metal.add_node_trait(node, "CUSTOM_FAST")
    metal.remove_node_trait(node, "CUSTOM_SILVER")
    check_equal("traits", sorted(metal.get_node(node.id).traits), ["CUSTOM_FAST", "CUSTOM_GOLD"])

    metal.set_node_boot_device(node, "pxe", persistent=False)
    check_equal("boot device", metal.get_node_boot_device(node)["boot_device"], "pxe")
    assert "pxe" in metal.get_node_supported_boot_devices(node)["supported_boot_devices"]
    methods = metal.list_node_vendor_passthru(node)
    assert "third_method_sync" in methods, methods
    response = metal.call_node_vendor_passthru(node, verb="POST", method="third_method_sync", body={"bar": "meow"})
    check_equal("passthru", response.json(), True)
    response = metal.call_node_vendor_passthru(node, verb="POST", method="second_method", body={"bar": "meow"})
    check_equal("passthru in the background", response.status_code, 202)
    metal.enable_node_console(node)
    check_equal("console", metal.get_node_console(node)["console_enabled"], True)
    metal.disable_node_console(node)
    metal.list_node_firmware(node)

    connector = metal.create_volume_connector(node_id=node.id, type="iqn", connector_id="iqn.2017-07.org.x:" + RUN)
    target = metal.create_volume_target(node_id=node.id, volume_type="iscsi", boot_index=0, volume_id="vol-1")
    check_equal("connectors", [c.id for c in metal.volume_connectors(node=node.id)], [connector.id])
    check_equal("targets", [t.id for t in metal.volume_targets(node=node.id)], [target.id])
    set_power(node, "power off", "power off")
    metal.delete_volume_target(target)
    metal.delete_volume_connector(connector)
    metal.delete_port(port)
    metal.delete_port_group(group)
    metal.delete_node(node)


def run_other_resources():
    chassis = metal.create_chassis(description=RUN)
    check_equal("chassis", metal.update_chassis(chassis, extra={"row": 7}).extra, {"row": 7})
    node = metal.create_node(driver="fake-hardware", name=RUN + "-there", chassis_id=chassis.id, resource_class=RUN)
    metal.set_node_traits(node, ["CUSTOM_GOLD"])
    provision(node, "manage", "manageable")
    provision(node, "provide", "available")
    set_power(node, "power off", "power off")

    allocation = metal.create_allocation(
        resource_class=RUN, name=RUN + "-claim", traits=["CUSTOM_GOLD"], candidate_nodes=[node.id])
    allocation = metal.wait_for_allocation(allocation, timeout=TIMEOUT)
    check_equal("allocated", (allocation.state, allocation.node_id), ("active", node.id))
    check_equal("instance", metal.get_node(node.id).instance_id, allocation.id)
    nothing = metal.create_allocation(resource_class=RUN + "-none")
    nothing = metal.wait_for_allocation(nothing, timeout=TIMEOUT, ignore_error=True)
    check_equal("no such machine", nothing.state, "error")
    metal.delete_allocation(nothing)
    metal.delete_allocation(allocation)

    trait = "CUSTOM_" + RUN.upper().replace("-", "_")
    steps = [{"interface": "deploy", "step": "deploy", "args": {}, "priority": 90}]
    template = metal.create_deploy_template(name=trait, steps=steps)
    check_equal("template", metal.get_deploy_template(template.id).steps[0]["priority"], 90)
    metal.delete_deploy_template(template)
    steps = [{"interface": "vendor", "step": "log_passthrough", "args": {}, "order": 1}]
    runbook = metal.create_runbook(name=trait, steps=steps)
    check_equal("runbook", metal.update_runbook(runbook, extra={"a": 1}).extra, {"a": 1})
    metal.add_node_trait(node, trait)
    provision(node, "manage", "manageable")
    metal.get_node(node.id).set_provision_state(metal, "clean", runbook=trait)
    metal.wait_for_nodes_provision_state([node], "manageable", timeout=TIMEOUT)
    metal.delete_runbook(runbook)
    rule = metal.create_inspection_rule(
        description=RUN, actions=[{"op": "set-attribute", "args": {"path": "/extra/seen", "value": "yes"}}],
        conditions=[{"op": "is-true", "args": {"value": "{inventory[cpu][count]}"}}])
    check_equal("rule", metal.get_inspection_rule(rule.id).description, RUN)
    metal.delete_inspection_rule(rule)

    driver = metal.get_driver("fake-hardware")
    check_equal("driver", driver.default_deploy_interface, "fake")
    assert list(metal.conductors()), "no conductor"
    metal.delete_node(node)
    metal.delete_chassis(chassis)


for part in (run_lifecycle, run_node_resources, run_other_resources):
    started_at = time.monotonic()
    part()
    print("%s: %.1f s" % (part.__name__, time.monotonic() - started_at), flush=True)
