#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# udhcpc runs this in the ramdisk with ironic-python-agent, with the DHCP lease in the environment.
case $1 in
bound | renew)
    ip address replace "$ip/${mask:-24}" dev "$interface"
    [ -n "$router" ] && ip route replace default via "${router%% *}" dev "$interface"
    for server in $dns; do echo "nameserver $server"; done >/etc/resolv.conf
    ;;
esac
