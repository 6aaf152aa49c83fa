// SPDX-License-Identifier: Apache-2.0
// The sign-in form; users are those of the API.

import { html, useState } from "../vendor/preact-htm.js";
import { ErrorNotice } from "./fetching.js";
import { Logo } from "./icons.js";
import { signIn } from "./session.js";

export function SignIn() {
  const [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const onSubmit = async (event) => {
    event.preventDefault();
    const { username, password } = event.currentTarget.elements;
    setBusy(true);
    const error = await signIn(username.value, password.value);
    setBusy(false);
    setProblem(error);
    if (error) password.select();
  };
  return html`<main class="sign-in"><form onSubmit=${onSubmit}>
    <h1 class="brand"><${Logo} /> Ferrite</h1>
    ${problem && html`<${ErrorNotice} message=${problem} />`}
    <label class="field"><span>User</span><input name="username" type="text" autocomplete="username" autocapitalize="none" required
      autofocus /></label>
    <label class="field"><span>Password</span><input name="password" type="password" autocomplete="current-password" required />
      </label>
    <button class="button primary" disabled=${busy}>${busy ? "Checking…" : "Sign in"}</button>
    <small class="faint">Use an API user. The initial password is in <code>admin-password</code> in the data directory.</small>
  </form></main>`;
}
