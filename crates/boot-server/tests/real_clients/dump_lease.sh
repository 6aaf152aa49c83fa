#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The script that udhcpc runs: writes the lease, which udhcpc passes in the environment, to the file `lease`
# in the working directory. It is a file of the source tree, because a script that a test writes may still
# be open in a child process of another test and cannot be executed then.
[ "$1" = bound ] && env > lease
exit 0
