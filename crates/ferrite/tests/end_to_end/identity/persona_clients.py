# SPDX-License-Identifier: Apache-2.0
"""Tries what users may do, with the real `baremetal` command line and openstacksdk.

    persona_clients.py FILE

The file has a list of attempts in JSON: the `OS_*` variables of the user, the client, and the names of
the nodes to change (`set`) and to deploy (`deploy`). Prints a list with the result of each: the visible
nodes, and for each operation and node `ok` or the HTTP status. A deployed node is undeployed again.
"""

import contextlib
import io
import json
import os
import re
import sys
import time

import openstack
from ironicclient.shell import main
from openstack import exceptions

TIMEOUT = 60


class Refused(Exception):
    """The server refused; the argument is the HTTP status."""


class CommandLine:
    def __init__(self, _variables):
        pass

    def run(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(["--max-retries", "0", *arguments])
            except SystemExit as end:
                status = end.code
        if not status:
            return out.getvalue()
        found = re.search(r"HTTP (\d{3})", err.getvalue())
        raise Refused(found[1] if found else err.getvalue())

    def list(self):
        listed = json.loads(self.run("node", "list", "-f", "json"))
        return [node["Name"] for node in listed]

    def set(self, node):
        self.run("node", "set", node, "--extra", "seen=yes")

    def provision(self, node, target):
        self.run("node", {"active": "deploy", "deleted": "undeploy"}[target], node)

    def state(self, node):
        fields = ("--fields", "provision_state", "target_provision_state", "last_error")
        return json.loads(self.run("node", "show", node, "-f", "json", *fields))


class Sdk:
    def __init__(self, variables):
        settings = {}
        # Without a catalog the address is the endpoint.
        if "OS_ENDPOINT" in variables:
            settings = {"baremetal_endpoint_override": variables["OS_ENDPOINT"], "region_name": "here"}
        self.metal = openstack.connect(
            load_yaml_config=False, load_envvars=True, baremetal_status_code_retries=0,
            **settings).baremetal

    @contextlib.contextmanager
    def refusals(self):
        try:
            yield
        except exceptions.HttpException as error:
            raise Refused(str(error.status_code)) from error

    def list(self):
        with self.refusals():
            return [node.name for node in self.metal.nodes()]

    def set(self, node):
        with self.refusals():
            self.metal.patch_node(node, [{"op": "add", "path": "/extra/seen", "value": "yes"}])

    def provision(self, node, target):
        with self.refusals():
            self.metal.set_node_provision_state(node, target)

    def state(self, node):
        with self.refusals():
            return self.metal.get_node(node).to_dict()


def wait_for(client, node, state):
    deadline = time.monotonic() + TIMEOUT
    while True:
        now = client.state(node)
        if now["provision_state"] == state and now["target_provision_state"] is None:
            return
        assert time.monotonic() < deadline and not now["provision_state"].endswith("failed"), now
        time.sleep(0.05)


def deploy(client, node):
    client.provision(node, "active")
    wait_for(client, node, "active")
    client.provision(node, "deleted")
    wait_for(client, node, "available")


def result(call, *arguments):
    try:
        call(*arguments)
    except Refused as refused:
        return str(refused)
    return "ok"


def attempt(given):
    for name in [name for name in os.environ if name.startswith("OS_")]:
        del os.environ[name]
    os.environ.update(given["variables"])
    client = {"baremetal": CommandLine, "openstacksdk": Sdk}[given["client"]](given["variables"])
    results = {}
    try:
        results["list"] = sorted(client.list())
    except Refused as refused:
        return {"list": str(refused)}
    results["set"] = [result(client.set, node) for node in given["set"]]
    results["deploy"] = [result(deploy, client, node) for node in given["deploy"]]
    return results


with open(sys.argv[1]) as file:
    attempts = json.load(file)
results = []
for given in attempts:
    started_at = time.monotonic()
    results.append(attempt(given))
    print("%s %.1f s" % (given["client"], time.monotonic() - started_at), file=sys.stderr)
print(json.dumps(results))
