# SPDX-License-Identifier: Apache-2.0
"""Manages a machine with the real `baremetal` command line.

    baremetal_power.py URL DRIVER DRIVER_INFO COMMAND...

DRIVER_INFO is JSON; COMMAND prints whether the machine is `running` or `shut off`. The commands run
in this process through the client's own entry point, because starting Python for each of them would
take longer than all of them.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import time

URL, DRIVER, DRIVER_INFO = sys.argv[1:4]
STATE_COMMAND = sys.argv[4:]
os.environ["OS_AUTH_TYPE"] = "none"
os.environ["OS_ENDPOINT"] = URL

from ironicclient.shell import main  # noqa: E402  (reads the environment above)

TIMEOUT = 120


def baremetal(line, *more):
    """Runs a command; arguments that contain spaces are given in `more`."""
    out, err = io.StringIO(), io.StringIO()
    arguments = line.split() + list(more)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    assert not status, "baremetal %s: %s" % (" ".join(arguments), err.getvalue().strip())
    return out.getvalue()


def show(line, *more):
    return json.loads(baremetal(line, *more, "-f", "json"))


def set_power(target, state, machine_state):
    """Requests a power state and waits for the result in the API and on the machine."""
    started_at = time.monotonic()
    baremetal("node %s machine" % target)
    while True:
        now = show("node show machine --fields power_state target_power_state last_error")
        if now["power_state"] == state and now["target_power_state"] is None:
            break
        assert time.monotonic() < started_at + TIMEOUT and not now["last_error"], now
        time.sleep(0.05)
    actual = subprocess.run(STATE_COMMAND, capture_output=True, text=True, check=True).stdout.strip()
    assert actual == machine_state, "the machine is %s after %s" % (actual, target)
    print("%-10s %5.1f s" % (target, time.monotonic() - started_at))


options = []
for key, value in json.loads(DRIVER_INFO).items():
    options += ["--driver-info", "%s=%s" % (key, value)]
baremetal("node create --name machine --driver", DRIVER, *options)
for validated in show("node validate machine"):
    if validated["Interface"] in ("power", "management"):
        assert validated["Result"] is True, validated
baremetal("node manage machine --wait %d" % TIMEOUT)
node = show("node show machine --fields provision_state power_state last_error")
assert node["provision_state"] == "manageable", node
assert node["power_state"] == "power off", node
set_power("power on", "power on", "running")
set_power("reboot", "power on", "running")
set_power("power off", "power off", "shut off")
