// SPDX-License-Identifier: Apache-2.0
// The constraints of a BIOS setting.

/**
 * @typedef {object} BiosSetting
 * @property {string} name
 * @property {string | null} value
 * @property {string | null} [attribute_type]
 * @property {string[] | null} [allowable_values]
 * @property {number | null} [lower_bound]
 * @property {number | null} [upper_bound]
 * @property {number | null} [min_length]
 * @property {number | null} [max_length]
 * @property {boolean | null} [read_only]
 */

/**
 * Returns why a value violates the known constraints, or null.
 * @param {BiosSetting} setting
 * @param {string} value
 */
export function settingProblem(setting, value) {
  const { name, attribute_type: type } = setting;
  if (type === "Integer") {
    const { lower_bound: low, upper_bound: high } = setting;
    if (!/^-?\d+$/.test(value)) return `${name} must be an integer.`;
    if (Number(value) < (low ?? -Infinity) || Number(value) > (high ?? Infinity))
      return `${name} must be between ${low} and ${high}.`;
  }
  if (type === "String") {
    const { min_length: shortest, max_length: longest } = setting;
    if (value.length < (shortest ?? 0) || value.length > (longest ?? Infinity))
      return `${name} must have ${shortest ?? 0} to ${longest} characters.`;
  }
  return null;
}
