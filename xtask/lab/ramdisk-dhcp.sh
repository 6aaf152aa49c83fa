#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# udhcpc runs this in the ramdisk, with the DHCP lease in the environment.
case $1 in
bound | renew)
    ip addr add "$ip/${mask:-24}" dev "$interface"
    [ -n "$router" ] && ip route add default via "${router%% *}" dev "$interface"
    echo "FERRITE-RAMDISK-DHCP server=$serverid lease=$lease router=$router dns=$dns boot_file=$boot_file"
    ;;
esac
