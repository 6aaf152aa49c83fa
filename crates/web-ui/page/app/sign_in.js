// SPDX-License-Identifier: Apache-2.0
// The form to sign in with the API's credentials.

import { html, useState } from "../vendor/preact-htm.js";
import { Icon, Mark } from "./icons.js";
import { signIn } from "./session.js";

export function SignIn() {
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const onSubmit = async (event) => {
    event.preventDefault();
    const { username, password } = event.currentTarget.elements;
    setBusy(true);
    const said = await signIn(username.value, password.value);
    setBusy(false);
    setRefusal(said);
    if (said) password.select();
  };
  return html`<main class="sign-in"><form onSubmit=${onSubmit}>
    <h1 class="brand"><${Mark} /> Ferrite</h1>
    ${refusal && html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>${refusal}</span></div>`}
    <label class="field"><span>User</span><input name="username" type="text" autocomplete="username" autocapitalize="none" required
      autofocus /></label>
    <label class="field"><span>Password</span><input name="password" type="password" autocomplete="current-password" required />
      </label>
    <button class="button primary" disabled=${busy}>${busy ? "Checking…" : "Sign in"}</button>
    <small class="faint">The API's users. The first password is in <code>admin-password</code> in the data directory.</small>
  </form></main>`;
}
