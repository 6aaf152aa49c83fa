// SPDX-License-Identifier: Apache-2.0
// Who is signed in. The password goes to the server once and is kept nowhere; a cookie that scripts
// cannot read stands for it from then on.

import { Subject } from "./subject.js";

const HEADERS = { "X-Ferrite-Page": "1", "Content-Type": "application/json" };

/** `{needed, user}`; null until the server has said. */
export const session = new Subject(null);

/** Asks the server who we are. A server in trouble does not sign us out: what it said last stays. */
export async function lookWhoWeAre() {
  const answer = await fetch("/ui/session", { headers: HEADERS });
  if (!answer.ok && answer.status !== 401) throw new Error(`The server answered ${answer.status}.`);
  session.set(answer.ok ? await answer.json() : { needed: true, user: null });
}

/** Signs in; gives what the server says against it, or null. */
export async function signIn(username, password) {
  let answer;
  try {
    answer = await fetch("/ui/session", {
      method: "POST", headers: HEADERS, body: JSON.stringify({ username, password }),
    });
  } catch {
    return "The server cannot be reached.";
  }
  const told = await answer.json().catch(() => null);
  if (answer.ok) {
    session.set(told);
    return null;
  }
  return told?.error?.message ?? `The server answered ${answer.status}.`;
}

export async function signOut() {
  await fetch("/ui/session", { method: "DELETE", headers: HEADERS }).catch(() => null);
  session.set({ needed: true, user: null });
}

/** The server does not know us any more. */
export function signedOut() {
  if (session.value && !(session.value.needed && !session.value.user)) {
    session.set({ needed: true, user: null });
  }
}
