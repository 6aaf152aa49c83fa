# SPDX-License-Identifier: Apache-2.0
"""Takes a machine under control with the real `baremetal` command line.

    power_walk.py URL DRIVER DRIVER_INFO COMMAND...

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
LOOK = sys.argv[4:]
os.environ["OS_AUTH_TYPE"] = "none"
os.environ["OS_ENDPOINT"] = URL

from ironicclient.shell import main  # noqa: E402  (reads the environment above)

PATIENCE = 120


def baremetal(line, *more):
    """Types a line; arguments that contain blanks are given in `more`."""
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


def powers(target, state, really):
    """Asks for a power state and waits for the one it leads to, in the API and in reality."""
    began = time.monotonic()
    baremetal("node %s machine" % target)
    while True:
        now = show("node show machine --fields power_state target_power_state last_error")
        if now["power_state"] == state and now["target_power_state"] is None:
            break
        assert time.monotonic() < began + PATIENCE and not now["last_error"], now
        time.sleep(0.05)
    seen = subprocess.run(LOOK, capture_output=True, text=True, check=True).stdout.strip()
    assert seen == really, "the machine is %s after %s" % (seen, target)
    print("%-10s %5.1f s" % (target, time.monotonic() - began))


options = []
for key, value in json.loads(DRIVER_INFO).items():
    options += ["--driver-info", "%s=%s" % (key, value)]
baremetal("node create --name machine --driver", DRIVER, *options)
for validated in show("node validate machine"):
    if validated["Interface"] in ("power", "management"):
        assert validated["Result"] is True, validated
baremetal("node manage machine --wait %d" % PATIENCE)
node = show("node show machine --fields provision_state power_state last_error")
assert node["provision_state"] == "manageable", node
assert node["power_state"] == "power off", node
powers("power on", "power on", "running")
powers("reboot", "power on", "running")
powers("power off", "power off", "shut off")
