#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# busybox's acpid runs this in the deployed system when the power button is pressed.
echo "FERRITE-DEPLOYED-POWER-BUTTON" >/dev/ttyS0
sync
poweroff -f
