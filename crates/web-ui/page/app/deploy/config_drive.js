// SPDX-License-Identifier: Apache-2.0
// The config drive of a deployed instance: host name, SSH keys, user data, network. cloud-init reads it.

/**
 * @typedef {object} InstanceIdentity
 * @property {string} hostname `{name}` stands for the name of the machine
 * @property {string} keys SSH public keys, one per line
 * @property {string} userData
 * @property {string} networkData JSON
 * @property {string | null} [problem]
 */

/**
 * Returns the config drive of a machine, or null if it would be empty or the server builds none.
 * @param {InstanceIdentity | null} identity
 * @param {string} name
 */
export function buildConfigDrive(identity, name) {
  if (!identity) return null;
  /** @type {Record<string, any>} */
  const drive = {},
    meta = {};
  const hostname = identity.hostname.trim().replaceAll("{name}", name);
  if (hostname) Object.assign(meta, { hostname, name: hostname });
  const keys = linesOf(identity.keys);
  if (keys.length)
    meta.public_keys = Object.fromEntries(keys.map((key, index) => [keyName(key, index), key]));
  if (Object.keys(meta).length) drive.meta_data = meta;
  if (identity.userData.trim()) drive.user_data = identity.userData;
  if (identity.networkData.trim()) drive.network_data = JSON.parse(identity.networkData);
  return Object.keys(drive).length ? drive : null;
}

/** @param {string} text */
const linesOf = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/**
 * The name of a key: its comment, such as `me@laptop`.
 * @param {string} key
 * @param {number} index
 */
const keyName = (key, index) => key.split(/\s+/).slice(2).join(" ") || `key-${index + 1}`;

const PUBLIC_KEY = /^(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]{16,}/;

/**
 * Returns the error of each invalid field.
 * @param {InstanceIdentity} identity
 * @returns {{ hostname?: string, keys?: string, networkData?: string }}
 */
export function validateIdentity({ hostname, keys, networkData }) {
  /** @type {{ hostname?: string, keys?: string, networkData?: string }} */
  const errors = {};
  if (hostname && !/^[A-Za-z0-9.-]+$/.test(hostname.replaceAll("{name}", "x")))
    errors.hostname = "A host name has letters, digits, dots and hyphens; {name} is allowed.";
  const invalid = linesOf(keys).find((line) => !PUBLIC_KEY.test(line));
  if (invalid)
    errors.keys = /PRIVATE/.test(keys)
      ? "This is a private key. Enter the public key, from the file that ends in .pub."
      : `Not a public key: ${invalid.slice(0, 40)}`;
  if (networkData.trim()) {
    try {
      const value = JSON.parse(networkData);
      if (value === null || typeof value !== "object" || Array.isArray(value))
        errors.networkData = "Must be a JSON object: {…}";
    } catch (error) {
      errors.networkData = error instanceof Error ? error.message : String(error);
    }
  }
  return errors;
}
