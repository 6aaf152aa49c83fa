#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The whole of the system on the disk image that the tests deploy. It says on the first serial
# console what it finds, one thing a line with FERRITE- before it, and idles until somebody pushes
# the power button. Kernel parameters:
#   ferrite.marker=WORD   tells systems apart
#   ferrite.loader=WORD   what on the disk started the kernel: uki, syslinux or entry
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
# No kernel message may come between.
dmesg -n 1
exec </dev/null >/dev/ttyS0 2>&1

say() { echo "FERRITE-$*"; }
parameter() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }

echo
say "DEPLOYED marker=$(parameter ferrite.marker)"
say "CMDLINE $(cat /proc/cmdline)"
if [ -d /sys/firmware/efi ]; then say "FIRMWARE uefi"; else say "FIRMWARE bios"; fi
# Every boot loader has a number; a kernel started by another one has 13 in the upper half.
loader=$(cat /proc/sys/kernel/bootloader_type)
case $((loader / 16)) in
13) say "STARTED-BY kexec" ;;
*) say "STARTED-BY firmware (boot loader $loader)" ;;
esac
for module in /modules/*; do insmod "$module" 2>/dev/null; done

# A disk is there a moment after its driver, and its partitions a moment later.
tries=0
while ! grep -q '[0-9] \(sd.*\|vd.*\|nvme.*p\)[0-9]$' /proc/partitions && [ $tries -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
for disk in /sys/block/*; do
    name=${disk##*/}
    case $name in loop* | ram* | sr*) continue ;; esac
    say "DISK $name sectors=$(cat "$disk/size") partitions=$(ls -d "$disk/$name"* 2>/dev/null | wc -l)"
done

at() { dd if="/dev/$1" bs=1 skip="$2" count="$3" 2>/dev/null; }
number_at() { at "$1" "$2" 8 | od -A n -t u8 | tr -d ' '; }
names() { awk 'NR > 2 { print $4 }' /proc/partitions; }

# A member of a mirror holds all of it: from where its data begins (in sectors, at 128 of the block
# of metadata 4 KiB into it) it is read like a disk, and its partitions appear.
mirrored=0
for name in $(names); do
    [ "$(at "$name" 4096 4 | od -A n -t x4 | tr -d ' ')" = a92b4efc ] || continue
    begins=$(($(number_at "$name" 4224) * 512))
    say "MIRROR $name data at $begins"
    losetup -r -P -o "$begins" "/dev/loop$mirrored" "/dev/$name" && mirrored=$((mirrored + 1))
done

# The label of an ISO, of FAT32 and of FAT12/16 are at fixed places.
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
    say "CONFIG-DRIVE none"
elif mount -o ro -t "${found#* }" "/dev/${found% *}" /mnt; then
    say "CONFIG-DRIVE-ON $found"
    (cd /mnt && find . -type f | sort) | while read -r file; do
        # One line, whatever is in it.
        say "CONFIG-DRIVE ${file#./}: $(sed ':a;N;$!ba;s/\n/\\n/g' "/mnt/$file")"
    done
    umount /mnt
else
    say "CONFIG-DRIVE unreadable on $found"
fi
say "DEPLOYED-DONE $(cut -d ' ' -f 1 /proc/uptime)"

# It looks for a script by the name of the button.
mkdir -p /etc/acpi/PWRF
ln -s /power-button /etc/acpi/PWRF/00000080
while :; do acpid -d -c /etc/acpi >/dev/null; sleep 60; done
