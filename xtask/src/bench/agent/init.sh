#!/bench/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first program of a machine whose agent is measured: says when it starts, leaves a shell on the
# serial port that carries out what the benchmark sends, and becomes the agent's own first program.
# Without an agent in the ramdisk only the shell is there, which is what the kernel alone takes.
busybox=/bench/busybox
$busybox mount -t devtmpfs dev /bench/dev
$busybox mount -t proc proc /bench/proc
# A shell that works in the background wants this, and a ramdisk without an agent has none.
[ -e /dev/null ] || $busybox mount -t devtmpfs dev /dev
(
    exec </bench/dev/ttyS0 >/bench/dev/ttyS0 2>&1
    # What it is told shall not come back with what it says.
    $busybox stty -echo
    while read -r line; do eval "$line"; done
) &
# Through the kernel's log, so that it is a line of its own whoever else speaks.
echo BENCH-INIT >/bench/dev/kmsg
[ -e /init ] && exec /init
while :; do $busybox sleep 3600; done
