// SPDX-License-Identifier: Apache-2.0
// Addresses as numbers: whether one is in a network, and how many of a range are in use.

/** An IPv4 or IPv6 address as a number, or null. */
export function numberOf(text) {
  if (text.includes(".")) {
    const parts = text.split(".").map(Number);
    return parts.length === 4 && parts.every((part) => part >= 0 && part < 256) ? parts.reduce((sum,
      part) => sum * 256n + BigInt(part), 0n) : null;
  }
  const [before, after] = text.split("::").map((part) => (part ? part.split(":") : []));
  const groups = after === undefined ? before : [...before, ...Array(8 - before.length - after.length).fill("0"), ...after];
  if (groups.length !== 8) return null;
  return groups.reduce((sum, group) => sum * 65536n + BigInt(parseInt(group, 16)), 0n);
}

/** Whether `address` is in `network`, such as `10.0.0.1/24`. */
export function inNetwork(address, network) {
  const [base, prefix] = network.split("/");
  if (base.includes(".") !== address.includes(".")) return false;
  const rest = BigInt((base.includes(".") ? 32 : 128) - Number(prefix));
  const [one, other] = [numberOf(address), numberOf(base)];
  return one !== null && other !== null && one >> rest === other >> rest;
}

/** How many addresses the ranges of a network have, and how many of them somebody has. */
export function freeIn({ ranges }, leases) {
  const ends = ranges.map((range) => range.split("-").map((end) => numberOf(end.trim())));
  const total = ends.reduce((sum, [first, last]) => sum + Number(last - first + 1n), 0);
  const used = leases.filter((lease) => {
    const number = lease.state === "ended" ? null : numberOf(lease.address);
    return number !== null && ends.some(([first, last]) => first <= number && number <= last);
  }).length;
  return { total, used };
}
