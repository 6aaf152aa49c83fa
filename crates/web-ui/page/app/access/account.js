// SPDX-License-Identifier: Apache-2.0
// The own account: user, scope, roles, and the change of the password.

import { html, useState } from "../../vendor/preact-htm.js";
import { request } from "../api.js";
import { rolesText, scopeLabel } from "../caller.js";
import { ErrorNotice } from "../fetching.js";
import { TextField } from "../form_dialog.js";
import { KeyValueList, Panel } from "../machine/panel.js";
import { markSignedOut } from "../session.js";
import { showMessage } from "../toasts.js";
import { hasAccount, passwordProblem } from "./model.js";

/** @param {{ known: any }} props */
export function Account({ known }) {
  const pairs = [
    ["User", known?.user ?? "anonymous"],
    ["Scope", scopeLabel(known) || "unknown"],
    ["Roles", rolesText(known)],
    ["All role assignments", known?.assignments?.join(", ")],
  ];
  return html`<${Panel} title="You" icon="user"><${KeyValueList} pairs=${pairs} />
      ${known?.scope === "none" && html`<p class="quiet">You have roles in several projects or in none. Sign in again and enter a project.</p>`}
      ${known?.scope === "unrestricted" && html`<p class="quiet">Roles do not apply to you: this server has no user database, or your entry in its htpasswd file has no roles.</p>`}<//>
    ${hasAccount(known) && html`<${PasswordPanel} user=${known.user} />`}`;
}

/** @param {{ user: string }} props */
function PasswordPanel({ user }) {
  const [form, setForm] = useState({ current: "", password: "", repeated: "" });
  const [error, setError] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const set = (name) => (value) => {
    setForm({ ...form, [name]: value });
    setError(null);
  };
  const problem = passwordProblem(form.password, form.repeated);
  const isReady = form.current && form.password && form.password === form.repeated && !problem;
  const send = async (event) => {
    event.preventDefault();
    if (!isReady || busy) return;
    setBusy(true);
    try {
      const path = `/v1/ferrite/users/${encodeURIComponent(user)}/password`;
      const body = { password: form.password, current_password: form.current };
      await request("PUT", path, body, { hasPassword: true });
      // A new password ends all sessions of the user.
      showMessage("Password changed. Sign in with the new password.");
      markSignedOut();
    } catch (caught) {
      setError(caught instanceof Error ? caught.message : String(caught));
      setBusy(false);
    }
  };
  return html`<${Panel} title="Password" icon="lock"><form class="dialog-form narrow" onSubmit=${send}>
    <input class="visually-hidden" type="text" name="username" autocomplete="username" value=${user} readonly tabindex="-1" aria-hidden="true" />
    <${TextField} label="Current password" type="password" autocomplete="current-password" value=${form.current} onChange=${set("current")} />
    <${TextField} label="New password" type="password" autocomplete="new-password" value=${form.password} onChange=${set("password")} />
    <${TextField} label="Repeat the new password" type="password" autocomplete="new-password" value=${form.repeated}
      onChange=${set("repeated")} />
    ${(problem ?? error) && html`<${ErrorNotice} message=${problem ?? error} />`}
    <p class="quiet">A new password ends all your sessions. API tokens stay valid.</p>
    <div><button class="button primary" disabled=${!isReady || busy}>Change password</button></div></form><//>`;
}
