// SPDX-License-Identifier: Apache-2.0
// The caller as the server sees it: user, scope, roles, and the policy rules that it matches. The web UI
// hides or disables what the rules do not allow; the server checks every request in any case.

import { get } from "./api.js";
import { Observable } from "./observable.js";
import { isSignedOut, session } from "./session.js";

/**
 * The response of `/v1/ferrite/whoami?permissions=true`.
 * @typedef {object} CallerRecord
 * @property {string | null} user
 * @property {string | null} user_id
 * @property {"unrestricted" | "system" | "project" | "none"} scope
 * @property {string | null} project
 * @property {string[]} roles
 * @property {string} method
 * @property {string[]} [assignments] the roles of a user of the database in all scopes
 * @property {string[]} [permissions] the rules that match without a resource
 * @property {string[]} [owner_permissions] the rules that match for resources of the caller's project
 * @property {string[]} [lessee_permissions] the rules that match for machines that the project leases
 */

/** The projects that own and lease a resource. */
/** @typedef {{ owner?: string | null, lessee?: string | null }} ResourceProjects */

/**
 * `undefined` until the server has responded, null if it did not respond with a caller: then nothing is
 * hidden.
 * @type {Observable<CallerRecord | null | undefined>}
 */
export const caller = new Observable(/** @type {any} */ (undefined));

/** Loads the caller at every sign-in. */
export function followSession() {
  session.subscribe((value) => {
    if (!value || isSignedOut(value)) caller.set(undefined);
    else loadCaller();
  });
}

async function loadCaller() {
  const loaded = await get("/v1/ferrite/whoami?permissions=true").catch(() => null);
  if (!isSignedOut(session.value)) caller.set(loaded ?? caller.value ?? null);
}

/**
 * Whether the caller matches a policy rule, without a resource or for a resource of these projects.
 * @param {CallerRecord | null | undefined} known
 * @param {string} rule
 * @param {ResourceProjects} [resource]
 */
export function matchesRule(known, rule, resource = {}) {
  if (!known?.permissions || known.permissions.includes(rule)) return true;
  const { project, owner_permissions: owned = [], lessee_permissions: leased = [] } = known;
  if (!project) return false;
  return (
    (resource.owner === project && owned.includes(rule)) ||
    (resource.lessee === project && leased.includes(rule))
  );
}

/**
 * Whether the caller matches one of the rules for any resource; true without rules.
 * @param {CallerRecord | null | undefined} known
 * @param {string[]} [rules]
 */
export function matchesAnyRule(known, rules) {
  const resource = { owner: known?.project, lessee: known?.project };
  return !rules || rules.some((rule) => matchesRule(known, rule, resource));
}

/**
 * Why the caller may not do what a rule protects; null if it may.
 * @param {CallerRecord | null | undefined} known
 * @param {string} rule
 * @param {ResourceProjects} [resource]
 */
export function denial(known, rule, resource) {
  if (matchesRule(known, rule, resource)) return null;
  return `Not allowed: needs the policy rule ${rule}; you have ${rolesText(known)}.`;
}

/**
 * The scope of the caller's roles: the project, or the system.
 * @param {CallerRecord | null | undefined} known
 */
export function scopeLabel(known) {
  switch (known?.scope) {
    case "project":
      return `project ${known.project}`;
    case "system":
      return "system";
    case "none":
      return "no project";
    case "unrestricted":
      return "full access";
    default:
      return "";
  }
}

/**
 * Only the highest role: the roles that it includes add nothing.
 * @param {CallerRecord | null | undefined} known
 */
export function rolesText(known) {
  if (!known) return "unknown roles";
  if (known.scope === "unrestricted") return "full access";
  const highest = ["admin", "manager", "member", "reader"].find((role) =>
    known.roles.includes(role),
  );
  const others = known.roles.filter(
    (role) => !["admin", "manager", "member", "reader"].includes(role),
  );
  const roles = [highest, ...others].filter(Boolean).join(", ");
  return roles ? `${roles} in ${scopeLabel(known)}` : "no roles";
}
