#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `poweroff` and `reboot` in the ramdisk with ironic-python-agent, which has no service manager.
sync
exec busybox "${0##*/}" -f
