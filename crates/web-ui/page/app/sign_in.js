// SPDX-License-Identifier: Apache-2.0
// The sign-in form; users are those of the API.

import { html, useState } from "../vendor/preact-htm.js";
import { ErrorNotice } from "./fetching.js";
import { Logo } from "./icons.js";
import { session, signIn } from "./session.js";

export function SignIn() {
  const [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const onSubmit = async (event) => {
    event.preventDefault();
    const { username, password, project } = event.currentTarget.elements;
    setBusy(true);
    const error = await signIn(username.value, password.value, project.value.trim());
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
    <label class="field"><span>Project (optional)</span><input name="project" type="text" autocomplete="off" autocapitalize="none"
      spellcheck=${false} /><small>A project, or <code>system</code>. If empty, the default.</small></label>
    <button class="button primary" disabled=${busy}>${busy ? "Checking…" : "Sign in"}</button>
    ${
      // With a target it is not taken for a link to a view, see route.js.
      session.value?.oidc?.login &&
      html`<a class="button" target="_self" href=${session.value.oidc.login}>Sign in with OpenID Connect</a>`
    }
    <small class="faint">Use an API user. The initial password is in <code>admin-password</code> in the data directory.</small>
  </form></main>`;
}
