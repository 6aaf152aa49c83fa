// SPDX-License-Identifier: Apache-2.0
// Amounts in words: bytes as disks are sold and as memory is counted, and plain numbers.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const BINARY = ["MiB", "GiB", "TiB"];

/** `960 GB`: powers of a thousand, as disks are sold. */
export function bytes(count) {
  let value = count, unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) { value /= 1000; unit++; }
  return `${round(value)} ${UNITS[unit]}`;
}

/** `256 GiB`, from a number of MiB, as memory is counted. */
export function memory(mib) {
  let value = mib, unit = 0;
  while (value >= 1024 && unit < BINARY.length - 1) { value /= 1024; unit++; }
  return `${round(value)} ${BINARY[unit]}`;
}

/** `1 machine`, `12 machines`. */
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

const round = (value) => (value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1));
