// SPDX-License-Identifier: Apache-2.0
// Amounts as text: bytes in decimal units, memory in binary units, and counted nouns.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const BINARY = ["MiB", "GiB", "TiB"];

/**
 * `960 GB`: powers of a thousand, as disks are labelled.
 * @param {number} number
 */
export function bytes(number) {
  let value = number,
    unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${round(value)} ${UNITS[unit]}`;
}

/**
 * `256 GiB`, from a number of MiB.
 * @param {number} mib
 */
export function memory(mib) {
  let value = mib,
    unit = 0;
  while (value >= 1024 && unit < BINARY.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${round(value)} ${BINARY[unit]}`;
}

/**
 * `1 machine`, `12 machines`.
 * @param {number} number
 * @param {string} singular
 */
export const count = (number, singular, plural = `${singular}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;

/** @param {number} value */
const round = (value) =>
  value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1);
