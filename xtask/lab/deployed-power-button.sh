#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# What busybox's acpid runs in the deployed system when somebody pushes the power button.
echo "FERRITE-DEPLOYED-POWER-BUTTON" >/dev/ttyS0
sync
poweroff -f
