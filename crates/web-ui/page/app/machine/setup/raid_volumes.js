// SPDX-License-Identifier: Apache-2.0
// RAID volumes as the form edits them, and as Ironic's `logical_disks`.

/**
 * @typedef {object} VolumeForm
 * @property {string} size_gb a number, or `MAX`
 * @property {string} raid_level
 * @property {boolean} is_root_volume
 * @property {string} controller
 * @property {string | number} disks the minimal number of physical disks
 */

/** @type {VolumeForm} */
export const NEW_VOLUME = {
  size_gb: "MAX",
  raid_level: "1",
  is_root_volume: true,
  controller: "",
  disks: "",
};

/**
 * @param {any} disk
 * @returns {VolumeForm}
 */
export const fromLogicalDisk = (disk) => ({
  size_gb: String(disk.size_gb),
  raid_level: disk.raid_level,
  is_root_volume: !!disk.is_root_volume,
  controller: disk.controller ?? "",
  disks: disk.number_of_physical_disks ?? "",
});

/** @param {VolumeForm} volume */
export function toLogicalDisk({ size_gb: size, raid_level, is_root_volume, controller, disks }) {
  return {
    size_gb: /^\d+$/.test(size) ? Number(size) : "MAX",
    raid_level,
    ...(is_root_volume && { is_root_volume }),
    ...(controller && { controller }),
    ...(disks && { number_of_physical_disks: Number(disks) }),
  };
}
