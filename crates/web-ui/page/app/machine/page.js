// SPDX-License-Identifier: Apache-2.0
// The page of one machine: its state and actions above, its details in tabs below.

import { html, useEffect, useMemo } from "../../vendor/preact-htm.js";
import { caller, matchesRule } from "../caller.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { href, route } from "../route.js";
import { Tabs } from "../tabs.js";
import { Configuration } from "./configuration.js";
import { Console } from "./console.js";
import { Hardware } from "./hardware.js";
import { Header } from "./header.js";
import { History } from "./history.js";
import { Logs } from "./logs.js";
import { Machine } from "./model.js";
import { Network } from "./network.js";
import { Setup } from "./setup/page.js";
import { Timeline } from "./timeline/page.js";

/**
 * The tabs. A new one is a component with the properties `machine` and `value`, and a line here, with
 * the policy rule that its content needs.
 * @type {[string, string, Function, string?][]}
 */
const TABS = [
  ["timeline", "Timeline", Timeline, "ferrite:node:timeline"],
  ["hardware", "Hardware", Hardware, "baremetal:node:inventory:get"],
  ["network", "Network", Network],
  ["setup", "BIOS, RAID, firmware", Setup, "baremetal:node:bios:get"],
  ["console", "Console", Console, "baremetal:node:get_console"],
  ["logs", "Logs", Logs, "ferrite:node:agent_logs"],
  ["history", "History", History, "baremetal:node:history:get"],
  ["configuration", "Configuration", Configuration],
];

export function MachinePage() {
  const {
    path: [, ident],
    query,
  } = useObservable(route);
  const machine = useMemo(() => new Machine(ident), [ident]);
  useEffect(() => () => machine.stop(), [machine]);
  const value = useObservable(machine);
  const known = useObservable(caller);

  if (value.error && (!value.node || value.error.status === 404))
    return html`<${LoadError} ident=${ident} error=${value.error} />`;
  if (!value.node)
    return html`<div class="machine"><div class="counters"><div class="loading"></div></div></div>`;
  const { node } = value;
  const tabs = TABS.filter(([, , , rule]) => !rule || matchesRule(known, rule, node));
  const [id, , Tab] = tabs.find(([name]) => name === query.get("tab")) ?? tabs[0];
  return html`<div class="machine">
    <${Header} machine=${machine} value=${value} />
    <${Tabs} tabs=${tabs} selected=${id} name="tab" label="Machine details">
      <${Tab} key=${id} machine=${machine} value=${value} /><//>
  </div>`;
}

/** @param {{ ident: string, error: Error & { status?: number } }} props */
function LoadError({ ident, error }) {
  const title =
    error.status === 404 ? `Machine “${ident}” does not exist` : "The machine cannot be loaded";
  return html`<div class="empty"><h2>${title}</h2>
      <p>${error.message}</p><a class="button" href=${href("fleet")}><${Icon} name="left" /> Fleet</a></div>`;
}
