#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ipmi_sim runs this to read and change its machine: `get NAME…` prints lines of NAME:VALUE,
# `set NAME VALUE…` changes it. The machine is the libvirt domain $LAB_DOMAIN at $LAB_URI. Every
# change is appended to the file $LAB_CHANGES, which the tests read.
virsh() { command virsh --quiet --connect "$LAB_URI" "$@"; }

get() {
    case $1 in
    power)
        state=$(virsh domstate "$LAB_DOMAIN") || exit 1
        if [ "$state" = running ]; then echo power:1; else echo power:0; fi ;;
    boot)
        # ipmi_sim's names; unknown devices are reported as the disk.
        case $(virsh dumpxml --inactive "$LAB_DOMAIN" | sed -n "s|.*<boot dev='\(.*\)'/>.*|\1|p") in
        network) echo boot:pxe ;;
        cdrom) echo boot:cdrom ;;
        hd) echo boot:default ;;
        *) echo boot:none ;;
        esac ;;
    *) exit 1 ;;
    esac
}

boot_from() {
    definition=$(mktemp) || exit 1
    virsh dumpxml --inactive "$LAB_DOMAIN" |
        sed -e '/<boot /d' -e "s|</os>|<boot dev='$1'/></os>|" >"$definition"
    virsh define "$definition"
    rm "$definition"
}

set_to() {
    echo "$@" >>"$LAB_CHANGES"
    case "$1 $2" in
    "power 1") virsh start "$LAB_DOMAIN" ;;
    "power 0") virsh destroy "$LAB_DOMAIN" ;;
    reset*) virsh reset "$LAB_DOMAIN" ;;
    shutdown*) virsh shutdown "$LAB_DOMAIN" ;;
    "boot pxe") boot_from network ;;
    "boot cdrom") boot_from cdrom ;;
    boot*) boot_from hd ;;
    esac >/dev/null 2>&1
    # A BMC reports success if the machine is already in that state.
    true
}

operation=$1
shift
case $operation in
get) for name in "$@"; do get "$name"; done ;;
set) set_to "$@" ;;
*) exit 1 ;;
esac
