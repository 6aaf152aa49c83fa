#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The system on the disk image that the tests deploy. It prints what it finds on the first serial
# console, in lines that start with FERRITE-, and idles until the power button is pressed. Kernel
# parameters:
#   ferrite.marker=WORD   identifies the system
#   ferrite.loader=WORD   the boot loader on the disk: uki, syslinux or entry
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
# No kernel messages between our lines.
dmesg -n 1
exec </dev/null >/dev/ttyS0 2>&1

report() { echo "FERRITE-$*"; }
parameter() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }

echo
report "DEPLOYED marker=$(parameter ferrite.marker)"
report "CMDLINE $(cat /proc/cmdline)"
if [ -d /sys/firmware/efi ]; then report "FIRMWARE uefi"; else report "FIRMWARE bios"; fi
# Each boot loader has a number; kexec has 13 in the upper half.
loader=$(cat /proc/sys/kernel/bootloader_type)
case $((loader / 16)) in
13) report "STARTED-BY kexec" ;;
*) report "STARTED-BY firmware (boot loader $loader)" ;;
esac
for module in /modules/*; do insmod "$module" 2>/dev/null; done

# Disks appear after their driver is loaded, and partitions after the disk.
tries=0
while ! grep -q '[0-9] \(sd.*\|vd.*\|nvme.*p\)[0-9]$' /proc/partitions && [ $tries -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
for disk in /sys/block/*; do
    name=${disk##*/}
    case $name in loop* | ram* | sr*) continue ;; esac
    report "DISK $name sectors=$(cat "$disk/size") partitions=$(ls -d "$disk/$name"* 2>/dev/null | wc -l)"
done

at() { dd if="/dev/$1" bs=1 skip="$2" count="$3" 2>/dev/null; }
number_at() { at "$1" "$2" 8 | od -A n -t u8 | tr -d ' '; }
names() { awk 'NR > 2 { print $4 }' /proc/partitions; }

# A member of a RAID 1 array contains all data. The data offset, in sectors, is at byte 128 of the
# metadata block, which is 4 KiB into the member. A loop device at that offset shows the partitions.
mirrored=0
for name in $(names); do
    [ "$(at "$name" 4096 4 | od -A n -t x4 | tr -d ' ')" = a92b4efc ] || continue
    begins=$(($(number_at "$name" 4224) * 512))
    report "MIRROR $name data at $begins"
    losetup -r -P -o "$begins" "/dev/loop$mirrored" "/dev/$name" && mirrored=$((mirrored + 1))
done

# The labels of ISO 9660, FAT32 and FAT12/16 are at fixed offsets.
label_is() { [ "$(at "$1" "$2" 8 | tr A-Z a-z)" = config-2 ]; }
config_drive() {
    for name in $(names); do
        if label_is "$name" 32808; then echo "$name iso9660"; return; fi
        if label_is "$name" 71 || label_is "$name" 43; then echo "$name vfat"; return; fi
    done
}
tries=0
while ! found=$(config_drive | grep .) && [ $tries -lt 10 ]; do sleep 0.1; tries=$((tries + 1)); done
if [ -z "$found" ]; then
    report "CONFIG-DRIVE none"
elif mount -o ro -t "${found#* }" "/dev/${found% *}" /mnt; then
    report "CONFIG-DRIVE-ON $found"
    (cd /mnt && find . -type f | sort) | while read -r file; do
        # The content in one line.
        report "CONFIG-DRIVE ${file#./}: $(sed ':a;N;$!ba;s/\n/\\n/g' "/mnt/$file")"
    done
    umount /mnt
else
    report "CONFIG-DRIVE unreadable on $found"
fi
report "DEPLOYED-DONE $(cut -d ' ' -f 1 /proc/uptime)"

# acpid runs a script with the name of the button.
mkdir -p /etc/acpi/PWRF
ln -s /power-button /etc/acpi/PWRF/00000080
while :; do acpid -d -c /etc/acpi >/dev/null; sleep 60; done
