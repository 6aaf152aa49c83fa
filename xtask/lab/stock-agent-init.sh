#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first program of the ramdisk with Ironic's own agent: devices by udev, addresses by DHCP, then
# the agent, which reads its settings from the kernel's parameters. What happens is said on the
# console, with STOCK-AGENT before it and the seconds since the kernel started.
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
exec </dev/null >/dev/console 2>&1

say() { echo "STOCK-AGENT $(cut -d ' ' -f 1 /proc/uptime) $*"; }
say "init"
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --type=subsystems --action=add
udevadm trigger --type=devices --action=add
udevadm settle --timeout=30
# What no device asks for.
for module in efivarfs isofs vfat sr_mod; do modprobe "$module"; done
[ -d /sys/firmware/efi/efivars ] && mount -t efivarfs efivarfs /sys/firmware/efi/efivars

busybox hostname stock-agent
ip link set lo up
for card in /sys/class/net/*; do
    card=${card##*/}
    [ "$card" = lo ] && continue
    ip link set "$card" up
    # One after the other would wait for each that nobody answers.
    busybox udhcpc -i "$card" -q -n -t 10 -T 3 -s /usr/sbin/on-lease >/dev/null &
    pending="$pending $!"
done
for process in $pending; do wait "$process"; done
say "addresses $(ip -4 -o address show scope global | awk '{ print $2, $4 }' | tr '\n' ' ')"
say "memory $(awk '/MemTotal|MemAvailable/ { print $1, $2, $3 }' /proc/meminfo | tr '\n' ' ')"
while :; do
    python3 -c 'from ironic_python_agent.cmd.agent import run; run()' \
        --config-dir /etc/ironic-python-agent --log-file /var/log/ironic-python-agent.log
    say "the agent ended with $?"
    tail -n 20 /var/log/ironic-python-agent.log
    sleep 5
done
