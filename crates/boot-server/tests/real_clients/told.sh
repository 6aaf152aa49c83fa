#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What udhcpc runs: writes down what it was told, in the folder it was started in. A file of its own,
# because a script that a test writes may still be open in the child of another test's fork, and cannot
# be run then.
[ "$1" = bound ] && env > told
exit 0
