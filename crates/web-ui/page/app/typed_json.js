// SPDX-License-Identifier: Apache-2.0
// JSON objects that somebody types.

/** The object as `value`, or what is wrong with it as `problem`. */
export function parsed(text) {
  try {
    const value = JSON.parse(text);
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    return isObject ? { value } : { problem: "It must be an object: {…}" };
  } catch (error) {
    return { problem: error.message };
  }
}
