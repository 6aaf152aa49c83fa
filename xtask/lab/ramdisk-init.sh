#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The init program of the ramdisk that the tests boot. It prints what it finds on the first serial
# console, in lines that start with FERRITE-RAMDISK-. Kernel parameters:
#   ferrite.dhcp=1       gets an address by DHCP; otherwise uses network_data.json
#   ferrite.report=URL   downloads this and prints the first line of the response
#   ferrite.after=off    powers the machine off at the end; otherwise idles
# network_data.json is read from the CD if its label is one that ironic-python-agent accepts.
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
# The tests read this console, whatever the kernel parameters are. No kernel messages between our
# lines.
dmesg -n 1
exec </dev/null >/dev/ttyS0 2>&1

report_line() { echo "FERRITE-RAMDISK-$*"; }
parameter() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }
# Prints the values of a name in a JSON file, one per line.
values() { tr '{},[]' '\n' <"$2" | sed -n "s/^ *\"$1\" *: *\"\(.*\)\" *$/\1/p"; }

echo
report_line "UP $(uname -r)"
report_line "PARAMETERS $(cat /proc/cmdline)"
if [ -d /sys/firmware/efi ]; then report_line "FIRMWARE uefi"; else report_line "FIRMWARE bios"; fi
# Files of a second ramdisk that was appended.
for file in /added/*; do [ -f "$file" ] && report_line "ADDED $file $(head -n 1 "$file")"; done
for module in /modules/*; do insmod "$module"; done
ip link set lo up

# The first NIC, once its driver has found it.
tries=0
while ! nic=$(ls /sys/class/net | grep -vx lo | head -n 1 | grep .) && [ $tries -lt 20 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -n "$nic" ] && ip link set "$nic" up
report_line "NIC ${nic:-none} $(cat "/sys/class/net/$nic/address" 2>/dev/null)"

static() {
    address=$(values ip_address "$1" | head -n 1)
    # Routes have masks too; that of a default route is zero.
    mask=$(values netmask "$1" | grep -vx 0.0.0.0 | head -n 1)
    gateway=$(values gateway "$1" | head -n 1)
    [ -n "$address" ] || return
    case $address in */*) ;; *) address=$address/${mask:-24} ;; esac
    ip addr add "$address" dev "$nic"
    [ -n "$gateway" ] && ip route add default via "$gateway" dev "$nic"
}

# A CD appears after its driver is loaded, or never.
tries=0
while [ ! -b /dev/sr0 ] && [ $tries -lt 10 ]; do sleep 0.1; tries=$((tries + 1)); done
network_data=
if [ -b /dev/sr0 ]; then
    label=$(dd if=/dev/sr0 bs=1 skip=32808 count=32 2>/dev/null | sed 's/ *$//')
    report_line "CD $label"
    # Reads the files through both directory hierarchies of the ISO.
    for options in ro,norock ro; do
        mount -t iso9660 -o $options /dev/sr0 /mnt || continue
        for file in $(cd /mnt && find . -name '*.json'); do
            report_line "CD-FILE $options ${file#.} $(tr -d '\n' <"/mnt/$file")"
        done
        [ $options = ro ] || umount /mnt
    done
    case $(echo "$label" | tr A-Z a-z) in
    config-2 | vmedia_boot_iso) network_data=/mnt/openstack/latest/network_data.json ;;
    esac
fi

if [ "$(parameter ferrite.dhcp)" = 1 ]; then
    # Gives up after half a minute.
    udhcpc -i "$nic" -n -q -t 10 -T 3 -s /dhcp || report_line "DHCP-FAILED"
elif [ -f "$network_data" ]; then
    static "$network_data"
fi
report_line "ADDRESS $(ip -4 -o addr show dev "$nic" | awk '{print $4}')"
ip addr

report=$(parameter ferrite.report)
if [ -n "$report" ]; then
    # Debian's static busybox crashes on a timeout of wget's own.
    if timeout 30 wget -q -O /response "$report"; then
        report_line "REPORTED $(head -n 1 /response)"
    else
        report_line "REPORT-FAILED $report"
    fi
fi
report_line "DONE $(cut -d ' ' -f 1 /proc/uptime)"
[ "$(parameter ferrite.after)" = off ] && poweroff -f
while :; do sleep 3600; done
