#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The whole of the ramdisk that the tests boot. It says on the first serial console what it finds,
# one thing a line with FERRITE-RAMDISK- before it, and does what its kernel parameters say:
#   ferrite.dhcp=1       asks DHCP for an address; without it, takes the one in network_data.json
#   ferrite.report=URL   fetches this and shows the first line of the answer
#   ferrite.after=off    switches the machine off at the end; without it, idles
# network_data.json is looked for on the CD, if that is labelled as ironic-python-agent expects.
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
# Whatever the parameters say about consoles: this is the one the tests read. No kernel message
# may come between.
dmesg -n 1
exec </dev/null >/dev/ttyS0 2>&1

say() { echo "FERRITE-RAMDISK-$*"; }
parameter() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }
# The values of a name in a JSON file, one a line.
values() { tr '{},[]' '\n' <"$2" | sed -n "s/^ *\"$1\" *: *\"\(.*\)\" *$/\1/p"; }

echo
say "UP $(uname -r)"
say "PARAMETERS $(cat /proc/cmdline)"
if [ -d /sys/firmware/efi ]; then say "FIRMWARE uefi"; else say "FIRMWARE bios"; fi
# What a second ramdisk after this one brought along.
for file in /added/*; do [ -f "$file" ] && say "ADDED $file $(head -n 1 "$file")"; done
for module in /modules/*; do insmod "$module"; done
ip link set lo up

# The first card, once its driver has found it.
tries=0
while ! card=$(ls /sys/class/net | grep -vx lo | head -n 1 | grep .) && [ $tries -lt 20 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -n "$card" ] && ip link set "$card" up
say "CARD ${card:-none} $(cat "/sys/class/net/$card/address" 2>/dev/null)"

static() {
    address=$(values ip_address "$1" | head -n 1)
    # Routes have masks as well; a default route's is the zero.
    mask=$(values netmask "$1" | grep -vx 0.0.0.0 | head -n 1)
    gateway=$(values gateway "$1" | head -n 1)
    [ -n "$address" ] || return
    case $address in */*) ;; *) address=$address/${mask:-24} ;; esac
    ip addr add "$address" dev "$card"
    [ -n "$gateway" ] && ip route add default via "$gateway" dev "$card"
}

# A CD is there a moment after its driver, or never.
tries=0
while [ ! -b /dev/sr0 ] && [ $tries -lt 10 ]; do sleep 0.1; tries=$((tries + 1)); done
network_data=
if [ -b /dev/sr0 ]; then
    label=$(dd if=/dev/sr0 bs=1 skip=32808 count=32 2>/dev/null | sed 's/ *$//')
    say "CD $label"
    # The same files with their names from either of the two tables of an ISO.
    for options in ro,norock ro; do
        mount -t iso9660 -o $options /dev/sr0 /mnt || continue
        for file in $(cd /mnt && find . -name '*.json'); do
            say "CD-FILE $options ${file#.} $(tr -d '\n' <"/mnt/$file")"
        done
        [ $options = ro ] || umount /mnt
    done
    case $(echo "$label" | tr A-Z a-z) in
    config-2 | vmedia_boot_iso) network_data=/mnt/openstack/latest/network_data.json ;;
    esac
fi

if [ "$(parameter ferrite.dhcp)" = 1 ]; then
    # It gives up after half a minute; the server's answers are in its environment.
    udhcpc -i "$card" -n -q -t 10 -T 3 -s /dhcp || say "DHCP-FAILED"
elif [ -f "$network_data" ]; then
    static "$network_data"
fi
say "ADDRESS $(ip -4 -o addr show dev "$card" | awk '{print $4}')"
ip addr

report=$(parameter ferrite.report)
if [ -n "$report" ]; then
    # Debian's static busybox crashes on a timeout of wget's own.
    if timeout 30 wget -q -O /answer "$report"; then
        say "REPORTED $(head -n 1 /answer)"
    else
        say "REPORT-FAILED $report"
    fi
fi
say "DONE $(cut -d ' ' -f 1 /proc/uptime)"
[ "$(parameter ferrite.after)" = off ] && poweroff -f
while :; do sleep 3600; done
