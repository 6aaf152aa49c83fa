// SPDX-License-Identifier: Apache-2.0
// The access page: the own account, users with their roles, projects with their quotas, API tokens.

import { html } from "../../vendor/preact-htm.js";
import { caller, matchesAnyRule } from "../caller.js";
import { useObservable } from "../observable.js";
import { route } from "../route.js";
import { Tabs } from "../tabs.js";
import { Account } from "./account.js";
import { hasAccount } from "./model.js";
import { Projects } from "./projects.js";
import { Tokens } from "./tokens.js";
import { Users } from "./users.js";

const TABS = [
  { id: "account", label: "Account", isShown: () => true, component: Account },
  {
    id: "users",
    label: "Users",
    isShown: (known) => matchesAnyRule(known, ["ferrite:user:get"]),
    component: Users,
  },
  {
    id: "projects",
    label: "Projects",
    // The list of callers without a project is empty.
    isShown: (known) =>
      matchesAnyRule(known, ["ferrite:project:list_all"]) ||
      (!!known?.project && matchesAnyRule(known, ["ferrite:project:get"])),
    component: Projects,
  },
  {
    id: "tokens",
    label: "API tokens",
    isShown: (known) =>
      matchesAnyRule(known, ["ferrite:token:list_all"]) ||
      (hasAccount(known) && matchesAnyRule(known, ["ferrite:token:own"])),
    component: Tokens,
  },
];

export function AccessPage() {
  const { query } = useObservable(route);
  const known = useObservable(caller);
  const shown = TABS.filter(({ isShown }) => isShown(known));
  const tab = shown.find(({ id }) => id === query.get("tab")) ?? shown[0];
  return html`<div class="page access"><header class="bar"><h1>Access</h1></header>
    <${Tabs} tabs=${shown.map(({ id, label }) => [id, label])} selected=${tab.id} name="tab" label="Access">
      <${tab.component} key=${tab.id} known=${known} /><//></div>`;
}
