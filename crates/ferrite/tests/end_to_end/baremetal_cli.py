# SPDX-License-Identifier: Apache-2.0
"""Runs the real `baremetal` command line through all parts of the API.

    baremetal_cli.py URL

The commands run in this process through the client's own entry point, because starting Python for
each of them would take longer than all of them. The first difference ends the script with a
traceback. Everything is removed at the end, so that the script can run on a shared server.
"""

import contextlib
import io
import json
import os
import sys
import time

URL = sys.argv[1]
os.environ.setdefault("OS_AUTH_TYPE", "none")
os.environ["OS_ENDPOINT" if os.environ["OS_AUTH_TYPE"] == "none" else "OS_ENDPOINT_OVERRIDE"] = URL
if os.environ["OS_AUTH_TYPE"] == "http_basic":
    os.environ["OS_ENDPOINT"] = URL

from ironicclient.shell import main  # noqa: E402  (reads the environment above)

RUN = "cli-%x" % (time.time_ns() // 1000000 % 2**32)
TIMEOUT = 60


class CommandError(Exception):
    """The command ended with an error."""


def baremetal(line, *more):
    """Runs a command; arguments that contain spaces are given in `more`."""
    out, err = io.StringIO(), io.StringIO()
    arguments = line.split() + list(more)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    if status:
        raise CommandError("baremetal %s: %s" % (" ".join(arguments), err.getvalue().strip()))
    return out.getvalue()


def show(line, *more):
    return json.loads(baremetal(line, *more, "-f", "json"))


def check_equal(what, actual, expected):
    assert actual == expected, "%s is %r instead of %r" % (what, actual, expected)


def expect_error(line, because):
    """The command must fail with an error that contains `because`."""
    try:
        # The conflict is expected to last, so do not retry.
        baremetal("--max-retries 0 " + line)
    except CommandError as error:
        assert because in str(error), "%s does not contain %r" % (error, because)
    else:
        raise AssertionError("baremetal %s succeeded" % line)


def wait_for_state(node, state, field="provision_state"):
    """Waits until a node is in a state and has no target state (a reboot begins and ends with the
    power on)."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        now = show("node show %s --fields %s target_%s last_error" % (node, field, field))
        if now[field] == state and now["target_" + field] is None:
            return
        assert time.monotonic() < deadline and not str(now[field]).endswith("failed"), \
            "%s is %s instead of %s: %s" % (node, now[field], state, now["last_error"])
        time.sleep(0.05)


def run_lifecycle():
    """Enrol, inspect, clean, deploy, rescue, rebuild, service, tear down."""
    name = RUN + "-life"
    node = show("node create --driver fake-hardware --name %s --resource-class %s"
                " --driver-info user=admin --driver-info password=secret --property cpus=8"
                " --extra rack=r1 --automated-clean" % (name, RUN))
    check_equal("state", node["provision_state"], "enroll")
    check_equal("name", node["name"], name)
    check_equal("password", node["driver_info"]["password"], "******")
    check_equal("found by name", show("node show " + name)["uuid"], node["uuid"])
    expect_error("node create --driver fake-hardware --name " + name, "already exists")
    expect_error("node create --driver no-such-driver", "no-such-driver")
    expect_error("node show no-such-node", "no-such-node")
    expect_error("node provide " + name, "provide")

    baremetal("node manage %s --wait %d" % (name, TIMEOUT))
    wait_for_state(name, "manageable")
    for validated in show("node validate " + name):
        if validated["Interface"] in ("power", "deploy", "management"):
            check_equal("validation of " + validated["Interface"], validated["Result"], True)
    baremetal("node inspect " + name)
    wait_for_state(name, "manageable")
    baremetal("node clean %s --clean-steps" % name,
              json.dumps([{"interface": "vendor", "step": "log_passthrough"}]))
    wait_for_state(name, "manageable")
    baremetal("node provide " + name)
    wait_for_state(name, "available")
    baremetal("node set %s --instance-info image_source=http://127.0.0.1/image"
              " --instance-info image_checksum=0123456789abcdef0123456789abcdef" % name)
    baremetal("node deploy %s --config-drive" % name, json.dumps({"meta_data": {"hostname": "a"}}))
    wait_for_state(name, "active")
    expect_error("node manage " + name, "manage")
    baremetal("node set %s --protected" % name)
    expect_error("node undeploy " + name, "protected")
    baremetal("node unset %s --protected" % name)
    baremetal("node rebuild " + name)
    wait_for_state(name, "active")
    baremetal("node rescue %s --rescue-password rescue-password" % name)
    wait_for_state(name, "rescue")
    baremetal("node unrescue " + name)
    wait_for_state(name, "active")
    baremetal("node service %s --service-steps" % name,
              json.dumps([{"interface": "vendor", "step": "log_passthrough"}]))
    wait_for_state(name, "active")
    baremetal("node undeploy " + name)
    wait_for_state(name, "available")
    check_equal("instance", show("node show " + name)["instance_info"], {})

    for command, state in (("power on", "power on"), ("reboot", "power on"), ("power off", "power off")):
        baremetal("node %s %s" % (command, name))
        wait_for_state(name, state, "power_state")
    baremetal("node maintenance set %s --reason" % name, "new fan")
    node = show("node show " + name)
    check_equal("maintenance", (node["maintenance"], node["maintenance_reason"]), (True, "new fan"))
    check_equal("found by filter", [n["Name"] for n in show("node list --maintenance --resource-class " + RUN)], [name])
    baremetal("node maintenance unset " + name)
    events = show("node history list " + name)
    if events:
        event = show("node history get %s %s" % (name, events[0]["UUID"]))
        check_equal("event", event["uuid"], events[0]["UUID"])
    baremetal("node delete " + name)
    expect_error("node show " + name, name)


def run_node_resources():
    """Ports, traits, boot device, console, network interfaces, settings, vendor methods."""
    name = RUN + "-parts"
    node = show("node create --driver fake-hardware --name %s --bios-interface fake"
                " --console-interface fake --firmware-interface fake" % name)["uuid"]
    baremetal("node manage " + name)
    wait_for_state(name, "manageable")
    mac = "52:54:%02x:%02x:%02x:%02x" % tuple(os.urandom(4))
    group = show("port group create --node %s --name %s --mode 802.3ad" % (node, RUN + "-bond"))
    port = show("port create --node %s %s --physical-network left --pxe-enabled true"
                " --local-link-connection switch_id=0a:1b:2c:3d:4e:5f --local-link-connection port_id=Ethernet1"
                " --port-group %s" % (node, mac, group["uuid"]))
    check_equal("port of", port["node_uuid"], node)
    check_equal("port by address", [p["UUID"] for p in show("port list --address " + mac)], [port["uuid"]])
    check_equal("port by node", [p["Address"] for p in show("port list --node " + name)], [mac])
    expect_error("port create --node %s %s" % (node, mac), "already exists")
    expect_error("port set %s --physical-network right" % port["uuid"], "physical network")
    baremetal("port unset %s --port-group" % port["uuid"])
    baremetal("port set %s --physical-network right --extra seen=yes" % port["uuid"])
    check_equal("network", show("port show " + port["uuid"])["physical_network"], "right")
    baremetal("port group set %s --mode active-backup" % group["uuid"])
    check_equal("mode", show("port group show " + group["name"])["mode"], "active-backup")

    baremetal("node add trait %s CUSTOM_GOLD HW_CPU_X86_VMX" % name)
    check_equal("traits", sorted(t["Traits"] for t in show("node trait list " + name)), ["CUSTOM_GOLD", "HW_CPU_X86_VMX"])
    baremetal("node remove trait %s HW_CPU_X86_VMX" % name)
    check_equal("traits", [t["Traits"] for t in show("node trait list " + name)], ["CUSTOM_GOLD"])
    expect_error("node add trait %s gold" % name, "gold")

    baremetal("node boot device set %s pxe --persistent" % name)
    check_equal("boot device", show("node boot device show " + name)["boot_device"], "pxe")
    assert "pxe" in str(show("node boot device show %s --supported" % name)["supported_boot_devices"])
    baremetal("node console enable " + name)
    check_equal("console", show("node console show " + name)["console_enabled"], True)
    baremetal("node console disable " + name)
    baremetal("node vif attach %s %s" % (name, node))
    baremetal("node vif list " + name)
    baremetal("node vif detach %s %s" % (name, node))
    baremetal("node bios setting list " + name)
    baremetal("node firmware list " + name)
    baremetal("node children list " + name)

    methods = [m["Name"] for m in show("node passthru list " + name)]
    assert "third_method_sync" in methods, methods
    baremetal("node passthru call %s second_method --http-method POST --arg bar=meow" % name)
    expect_error("node passthru call %s no_such_method" % name, "no_such_method")

    connector = show("volume connector create --node %s --type iqn --connector-id iqn.2017-07.org.example:%s"
                     % (node, RUN))
    baremetal("node power off " + name)
    wait_for_state(name, "power off", "power_state")
    baremetal("volume connector set %s --extra a=b" % connector["uuid"])
    check_equal("connector", show("volume connector show " + connector["uuid"])["extra"], {"a": "b"})
    target = show("volume target create --node %s --type iscsi --boot-index 0 --volume-id vol-1"
                  " --property target_iqn=iqn.2017-07.org.example:t" % node)
    check_equal("targets", [t["UUID"] for t in show("volume target list --node " + name)], [target["uuid"]])
    baremetal("volume target delete " + target["uuid"])
    baremetal("volume connector delete " + connector["uuid"])
    baremetal("port delete " + port["uuid"])
    baremetal("port group delete " + group["uuid"])
    baremetal("node delete " + name)


def run_other_resources():
    """Chassis, allocations, templates, drivers, conductors."""
    chassis = show("chassis create --description", RUN)["uuid"]
    name = RUN + "-there"
    baremetal("node create --driver fake-hardware --name %s --chassis-uuid %s --resource-class %s"
              " --no-automated-clean" % (name, chassis, RUN))
    check_equal("in chassis", [n["Name"] for n in show("node list --chassis " + chassis)], [name])
    baremetal("chassis set %s --extra row=7" % chassis)
    check_equal("chassis", show("chassis show " + chassis)["extra"], {"row": 7})
    baremetal("node manage " + name)
    wait_for_state(name, "manageable")
    baremetal("node provide " + name)
    wait_for_state(name, "available")
    baremetal("node power off " + name)
    wait_for_state(name, "power off", "power_state")

    allocation = show("allocation create --resource-class %s --name %s-claim --wait %d" % (RUN, RUN, TIMEOUT))
    check_equal("allocation", (allocation["state"], allocation["last_error"]), ("active", None))
    check_equal("allocated", show("node show " + name)["allocation_uuid"], allocation["uuid"])
    check_equal("listed", [a["UUID"] for a in show("allocation list --resource-class " + RUN)], [allocation["uuid"]])
    baremetal("allocation set %s-claim --extra for=us" % RUN)
    baremetal("allocation delete %s-claim" % RUN)
    check_equal("free again", show("node show " + name)["instance_uuid"], None)

    trait = "CUSTOM_" + RUN.upper().replace("-", "_")
    steps = [{"interface": "deploy", "step": "deploy", "args": {}, "priority": 90}]
    template = show("deploy template create %s --steps" % trait, json.dumps(steps))
    check_equal("template", template["name"], trait)
    expect_error("deploy template create gold --steps []", "")
    baremetal("deploy template set %s --extra a=b" % trait)
    baremetal("deploy template delete " + trait)

    check_equal("driver", [d["Supported driver(s)"] for d in show("driver list")
                    if d["Supported driver(s)"] == "fake-hardware"], ["fake-hardware"])
    check_equal("default", show("driver show fake-hardware")["default_power_interface"], "fake")
    baremetal("driver property list fake-hardware")
    baremetal("driver raid property list fake-hardware")
    baremetal("driver passthru list fake-hardware")
    conductors = show("conductor list")
    assert conductors, "no conductor"
    hostname = conductors[0]["Hostname"]
    check_equal("conductor", show("conductor show " + hostname)["hostname"], hostname)

    baremetal("node delete " + name)
    baremetal("chassis delete " + chassis)


for part in (run_lifecycle, run_node_resources, run_other_resources):
    started_at = time.monotonic()
    part()
    print("%s: %.1f s" % (part.__name__, time.monotonic() - started_at), flush=True)
