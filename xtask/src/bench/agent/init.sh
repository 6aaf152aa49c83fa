#!/bench/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The init program of a machine whose agent is measured: prints a line when it starts, runs a shell on
# the serial port for commands of the benchmark, and then executes the init program of the agent. In a
# ramdisk without an agent only the shell runs.
busybox=/bench/busybox
$busybox mount -t devtmpfs dev /bench/dev
$busybox mount -t proc proc /bench/proc
# A background shell needs /dev/null, which a ramdisk without an agent lacks.
[ -e /dev/null ] || $busybox mount -t devtmpfs dev /dev
(
    exec </bench/dev/ttyS0 >/bench/dev/ttyS0 2>&1
    # Commands must not appear in the output.
    $busybox stty -echo
    while read -r line; do eval "$line"; done
) &
# Through the kernel log, so that it is a line of its own.
echo BENCH-INIT >/bench/dev/kmsg
[ -e /init ] && exec /init
while :; do $busybox sleep 3600; done
