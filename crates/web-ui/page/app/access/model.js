// SPDX-License-Identifier: Apache-2.0
// Role assignments, quotas and lifetimes of tokens, as the access page shows and edits them.

const DAY_SECONDS = 86400;

/** The roles with a meaning in the default policy, lowest first. */
export const ROLES = ["reader", "member", "manager", "admin", "service"];

/** The scope of roles for the whole installation. */
export const SYSTEM = "system";

/** Lifetimes of new tokens: seconds and label; `never` for tokens without expiry. */
/** @type {[string, string][]} */
export const LIFETIMES = [
  [String(DAY_SECONDS), "1 day"],
  [String(7 * DAY_SECONDS), "7 days"],
  [String(30 * DAY_SECONDS), "30 days"],
  [String(90 * DAY_SECONDS), "90 days"],
  [String(365 * DAY_SECONDS), "1 year"],
  ["never", "never expires"],
];
export const DEFAULT_LIFETIME = String(90 * DAY_SECONDS);

/**
 * Splits `member@storage`. The name of a role has no `@`.
 * @param {string} text
 * @returns {{ role: string, scope: string }}
 */
export function parseAssignment(text) {
  const at = text.indexOf("@");
  return at < 0
    ? { role: text, scope: SYSTEM }
    : { role: text.slice(0, at), scope: text.slice(at + 1) };
}

/** @param {{ role: string, scope: string }} assignment */
export const formatAssignment = ({ role, scope }) => `${role}@${scope}`;

/**
 * The assignments as texts, without duplicates.
 * @param {{ role: string, scope: string }[]} assignments
 */
export const formatAssignments = (assignments) => [...new Set(assignments.map(formatAssignment))];

/**
 * The body of a request for a new token. Empty limits are left out.
 * @param {{ user: string, description: string, lifetime: string, role: string, scope: string }} form
 */
export function tokenRequest({ user, description, lifetime, role, scope }) {
  return {
    ...(user ? { user } : {}),
    description: description.trim(),
    ...(lifetime === "never" ? { never_expires: true } : { expires_in: Number(lifetime) }),
    ...(role ? { role } : {}),
    ...(scope ? { scope } : {}),
  };
}

/**
 * The limit of a token in words.
 * @param {{ role: string | null, scope: string | null }} token
 */
export function tokenLimit({ role, scope }) {
  if (!role && !scope) return "all roles of the user";
  return `${role ?? "all roles"} in ${scope ?? "all scopes"}`;
}

/**
 * Why a new password cannot be sent, or null.
 * @param {string} password
 * @param {string} repeated
 */
export function passwordProblem(password, repeated) {
  if (!password) return null;
  const size = new TextEncoder().encode(password).length;
  if (size < 8) return "A password has at least 8 characters.";
  if (size > 512) return "A password has at most 512 bytes.";
  return repeated && password !== repeated ? "The passwords differ." : null;
}

/**
 * Parses quotas, one per line: `machines = 10`. Returns them as `value`, or the error as `problem`.
 * @param {string} text
 * @returns {{ value: Record<string, number>, problem: string | null }}
 */
export function parseQuotas(text) {
  /** @type {Record<string, number>} */
  const value = {};
  for (const line of text.split("\n").map((part) => part.trim())) {
    if (!line) continue;
    const [, subject, number] = /^([^=\s]+)\s*=\s*(\d{1,8})$/.exec(line) ?? [];
    if (!subject) return { value: {}, problem: `Not a quota, such as machines = 10: ${line}` };
    if (subject !== "machines" && !/^(resource_class|flavour):./.test(subject))
      return {
        value: {},
        problem: `Not machines, resource_class:NAME or flavour:NAME: ${subject}`,
      };
    value[subject] = Number(number);
  }
  return { value, problem: null };
}

/** @param {{ subject: string, machines: number }[]} limits */
export const formatQuotas = (limits) =>
  limits.map(({ subject, machines }) => `${subject} = ${machines}`).join("\n");

/**
 * Whether the caller is a user of the database, with a password and tokens of its own.
 * @param {import("../caller.js").CallerRecord | null | undefined} known
 */
export const hasAccount = (known) => !!known?.assignments;
