#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The init program of the ramdisk with ironic-python-agent: sets up devices with udev and addresses
# with DHCP, then runs the agent, which reads its settings from the kernel parameters. Prints its
# progress on the console, in lines with STOCK-AGENT and the seconds since the kernel started.
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
exec </dev/null >/dev/console 2>&1

report() { echo "STOCK-AGENT $(cut -d ' ' -f 1 /proc/uptime) $*"; }
report "init"
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --type=subsystems --action=add
udevadm trigger --type=devices --action=add
udevadm settle --timeout=30
# Modules that no device triggers.
for module in efivarfs isofs vfat sr_mod; do modprobe "$module"; done
[ -d /sys/firmware/efi/efivars ] && mount -t efivarfs efivarfs /sys/firmware/efi/efivars

busybox hostname stock-agent
ip link set lo up
for nic in /sys/class/net/*; do
    nic=${nic##*/}
    [ "$nic" = lo ] && continue
    ip link set "$nic" up
    # In parallel, because a NIC without a DHCP server waits for its timeout.
    busybox udhcpc -i "$nic" -q -n -t 10 -T 3 -s /usr/sbin/on-lease >/dev/null &
    pending="$pending $!"
done
for process in $pending; do wait "$process"; done
report "addresses $(ip -4 -o address show scope global | awk '{ print $2, $4 }' | tr '\n' ' ')"
report "memory $(awk '/MemTotal|MemAvailable/ { print $1, $2, $3 }' /proc/meminfo | tr '\n' ' ')"
while :; do
    python3 -c 'from ironic_python_agent.cmd.agent import run; run()' \
        --config-dir /etc/ironic-python-agent --log-file /var/log/ironic-python-agent.log
    report "the agent exited with $?"
    tail -n 20 /var/log/ironic-python-agent.log
    sleep 5
done
