#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `poweroff` and `reboot` in the ramdisk with Ironic's own agent: there is no service manager to ask.
sync
exec busybox "${0##*/}" -f
