// SPDX-License-Identifier: Apache-2.0
// The signed-in user. The password is sent once and not stored; afterwards an HttpOnly cookie
// authenticates requests.

import { Observable } from "./observable.js";

const HEADERS = { "X-Ferrite-Page": "1", "Content-Type": "application/json" };

/**
 * Whether a sign-in is needed, the signed-in user, and the path of the sign-in with OpenID Connect if it is
 * enabled; null until the server has responded.
 * @typedef {{ needed: boolean, user: string | null, oidc?: { login: string | null } }} Session
 */
/** @type {Observable<Session | null>} */
export const session = new Observable(/** @type {any} */ (null));

/** Loads the session. A server error other than 401 throws and leaves the user signed in. */
export async function loadSession() {
  const response = await fetch("/ui/session", { headers: HEADERS });
  if (!response.ok && response.status !== 401) throw new Error(`HTTP status ${response.status}.`);
  session.set(response.ok ? await response.json() : signedOut());
}

/** @returns {Session} */
const signedOut = () => ({
  needed: true,
  user: null,
  ...(session.value?.oidc ? { oidc: session.value.oidc } : {}),
});

/** @param {Session | null} value */
export const isSignedOut = (value) => !!value && value.needed && !value.user;

/**
 * Signs in; returns the error message, or null on success. `project` is the scope of the session: a
 * project or `system`; if it is empty, the server selects one.
 * @param {string} username
 * @param {string} password
 * @param {string} project
 */
export async function signIn(username, password, project) {
  let response;
  try {
    response = await fetch("/ui/session", {
      method: "POST",
      headers: HEADERS,
      body: JSON.stringify({ username, password, ...(project ? { project } : {}) }),
    });
  } catch {
    return "Server unreachable.";
  }
  const body = await response.json().catch(() => null);
  if (response.ok) {
    session.set({ ...body, ...(session.value?.oidc ? { oidc: session.value.oidc } : {}) });
    return null;
  }
  return body?.error?.message ?? `HTTP status ${response.status}.`;
}

export async function signOut() {
  await fetch("/ui/session", { method: "DELETE", headers: HEADERS }).catch(() => null);
  session.set(signedOut());
}

/** Shows the sign-in form, after the server has rejected the session. */
export function markSignedOut() {
  if (session.value && !isSignedOut(session.value)) session.set(signedOut());
}
