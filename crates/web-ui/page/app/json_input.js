// SPDX-License-Identifier: Apache-2.0
// JSON objects entered as text.

/**
 * Parses a JSON object; returns it as `value`, or the error message as `problem`.
 * @param {string} text
 * @returns {{ value: Record<string, any>, problem?: undefined } | { value?: undefined, problem: string }}
 */
export function parseObject(text) {
  try {
    const value = JSON.parse(text);
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    return isObject ? { value } : { problem: "Must be a JSON object: {…}" };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}
