// SPDX-License-Identifier: Apache-2.0
// The filters of the audit log page, the request parameters they stand for, and the text of entries.

/** @type {[string, string][]} */
export const OUTCOME_OPTIONS = [
  ["", "All"],
  ["accepted", "Changes"],
  ["refused", "Refusals"],
  ["failed", "Errors"],
];

/** @type {[string, string][]} */
export const TIME_OPTIONS = [
  ["", "Any time"],
  ["3600", "Last hour"],
  ["86400", "Last day"],
  ["604800", "Last week"],
  ["2592000", "Last 30 days"],
];

const FILTERS = ["user", "project", "resource", "request_id", "address", "outcome"];

/**
 * The parameters of a search, from the query of the address; relative times count back from `now`.
 * @param {URLSearchParams} query
 * @param {number} now
 * @returns {Record<string, string>}
 */
export function auditParameters(query, now) {
  /** @type {Record<string, string>} */
  const parameters = {};
  for (const name of FILTERS) {
    const value = query.get(name)?.trim();
    if (value) parameters[name] = value;
  }
  const span = Number(query.get("span") ?? "");
  if (span > 0) parameters.from = new Date(now - span * 1000).toISOString();
  return parameters;
}

/**
 * The address of the export with the same filters.
 * @param {URLSearchParams} query
 * @param {number} now
 */
export const exportPath = (query, now) =>
  `/v1/ferrite/audit-log?${new URLSearchParams({ ...auditParameters(query, now), format: "jsonl" })}`;

/**
 * Who sent the request.
 * @param {{ user: string | null, project: string | null, address: string | null }} entry
 */
export function requesterText({ user, project, address }) {
  const name = user ?? (address ? `unknown, ${address}` : "unknown");
  return project ? `${name} (${project})` : name;
}

/**
 * The class of the mark of an outcome.
 * @param {string} outcome
 */
export const outcomeLevel = (outcome) =>
  ({ accepted: "good", refused: "warn", failed: "bad" })[outcome] ?? "";

/**
 * The message of a refusal, and how many similar refusals were not recorded.
 * @param {{ message: string | null, suppressed?: number | null }} entry
 */
export function detailText({ message, suppressed }) {
  const left = suppressed ? `${suppressed} further refusals were not recorded` : "";
  return [message, left].filter(Boolean).join("; ");
}
