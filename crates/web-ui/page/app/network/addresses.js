// SPDX-License-Identifier: Apache-2.0
// IP addresses as numbers: membership in a network, and the usage of ranges.

/**
 * Parses an IPv4 or IPv6 address; returns null if it is invalid.
 * @param {string} text
 * @returns {bigint | null}
 */
export function parseAddress(text) {
  return text.includes(".") ? parseIpv4(text) : parseIpv6(text);
}

/** @param {string} text */
function parseIpv4(text) {
  const parts = text.split(".").map(Number);
  const isValid = parts.length === 4 && parts.every((part) => part >= 0 && part < 256);
  return isValid ? parts.reduce((sum, part) => sum * 256n + BigInt(part), 0n) : null;
}

/** @param {string} text */
function parseIpv6(text) {
  const halves = text.split("::").map((half) => (half ? half.split(":") : []));
  if (halves.length > 2) return null;
  const [before, after] = halves;
  const missing = after ? 8 - before.length - after.length : 0;
  if (missing < 0) return null;
  const groups = after ? [...before, ...Array(missing).fill("0"), ...after] : before;
  if (groups.length !== 8 || !groups.every((group) => /^[0-9a-f]{1,4}$/i.test(group))) return null;
  return groups.reduce((sum, group) => sum * 65536n + BigInt(parseInt(group, 16)), 0n);
}

/**
 * Whether an address is in a network such as `10.0.0.1/24`.
 * @param {string} address
 * @param {string} network
 */
export function inNetwork(address, network) {
  const [base, prefix] = network.split("/");
  const isIpv4 = base.includes(".");
  if (isIpv4 !== address.includes(".")) return false;
  const hostBits = BigInt((isIpv4 ? 32 : 128) - Number(prefix));
  const [a, b] = [parseAddress(address), parseAddress(base)];
  return a !== null && b !== null && a >> hostBits === b >> hostBits;
}

/**
 * The number of addresses in the ranges of a network, and how many of them are in use.
 * @param {{ ranges: string[] }} network
 * @param {{ address: string, state: string }[]} leases
 */
export function rangeUsage({ ranges }, leases) {
  const bounds = ranges.flatMap((range) => {
    const [first, last] = range.split("-").map((bound) => parseAddress(bound.trim()));
    return first !== null && last !== null && last !== undefined ? [{ first, last }] : [];
  });
  const total = bounds.reduce((sum, { first, last }) => sum + Number(last - first + 1n), 0);
  const used = leases.filter(({ address, state }) => {
    const number = state === "expired" ? null : parseAddress(address);
    return number !== null && bounds.some(({ first, last }) => first <= number && number <= last);
  }).length;
  return { total, used };
}
