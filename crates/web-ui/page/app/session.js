// SPDX-License-Identifier: Apache-2.0
// The signed-in user. The password is sent once and not stored; afterwards an HttpOnly cookie
// authenticates requests.

import { Observable } from "./observable.js";

const HEADERS = { "X-Ferrite-Page": "1", "Content-Type": "application/json" };

/** Whether a sign-in is needed, and the signed-in user; null until the server has responded. */
/** @type {Observable<{ needed: boolean, user: string | null } | null>} */
export const session = new Observable(/** @type {any} */ (null));

/** Loads the session. A server error other than 401 throws and leaves the user signed in. */
export async function loadSession() {
  const response = await fetch("/ui/session", { headers: HEADERS });
  if (!response.ok && response.status !== 401) throw new Error(`HTTP status ${response.status}.`);
  session.set(response.ok ? await response.json() : { needed: true, user: null });
}

/**
 * Signs in; returns the error message, or null on success.
 * @param {string} username
 * @param {string} password
 */
export async function signIn(username, password) {
  let response;
  try {
    response = await fetch("/ui/session", {
      method: "POST",
      headers: HEADERS,
      body: JSON.stringify({ username, password }),
    });
  } catch {
    return "Server unreachable.";
  }
  const body = await response.json().catch(() => null);
  if (response.ok) {
    session.set(body);
    return null;
  }
  return body?.error?.message ?? `HTTP status ${response.status}.`;
}

export async function signOut() {
  await fetch("/ui/session", { method: "DELETE", headers: HEADERS }).catch(() => null);
  session.set({ needed: true, user: null });
}

/** Shows the sign-in form, after the server has rejected the session. */
export function markSignedOut() {
  if (session.value && !(session.value.needed && !session.value.user)) {
    session.set({ needed: true, user: null });
  }
}
