// SPDX-License-Identifier: Apache-2.0
// JSON patches of nodes.

/**
 * The operation that sets a field; an empty value resets it to its default.
 * @param {string} path
 * @param {unknown} value
 */
export const changeOf = (path, value) =>
  value === "" || value === null ? { op: "remove", path } : { op: "add", path, value };

/**
 * The operations that change the members of an object. Unchanged members, and so masked secrets, are
 * not sent.
 * @param {string} path
 * @param {Record<string, any>} before
 * @param {Record<string, any>} after
 */
export function memberChanges(path, before, after) {
  const pointer = (key) => `${path}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  const isEqual = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  return [
    ...Object.keys(before)
      .filter((key) => !(key in after))
      .map((key) => ({ op: "remove", path: pointer(key) })),
    ...Object.entries(after)
      .filter(([key, value]) => !isEqual(before[key], value))
      .map(([key, value]) => ({ op: "add", path: pointer(key), value })),
  ];
}
