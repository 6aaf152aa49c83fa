// SPDX-License-Identifier: Apache-2.0
// The page of one machine: what it does and why it waits above, everything about it in tabs below.

import { html, useEffect, useMemo } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { href, route, setQuery } from "../route.js";
import { useSubject } from "../subject.js";
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

/** The tabs. A new one is a component that gets `machine` and `value`, and a line here. */
const TABS = [
  ["timeline", "Timeline", Timeline],
  ["hardware", "Hardware", Hardware],
  ["network", "Network", Network],
  ["setup", "BIOS, RAID, firmware", Setup],
  ["console", "Console", Console],
  ["logs", "Logs", Logs],
  ["history", "History", History],
  ["configuration", "Configuration", Configuration],
];

export function MachinePage() {
  const { path: [, ident], query } = useSubject(route);
  const machine = useMemo(() => new Machine(ident), [ident]);
  useEffect(() => () => machine.end(), [machine]);
  const value = useSubject(machine);
  useEffect(() => {
    document.title = value.node ? `${value.node.name ?? value.node.uuid} · Ferrite` : "Ferrite";
    return () => { document.title = "Ferrite"; };
  }, [value.node?.name]);

  if (value.error && (!value.node || value.error.status === 404)) {
    return html`<div class="empty"><h2>${value.error.status === 404 ? `There is no machine “${ident}”` : "The machine cannot be shown"}</h2>
      <p>${value.error.message}</p><a class="button" href=${href("fleet")}><${Icon} name="left" /> To the fleet</a></div>`;
  }
  if (!value.node) return html`<div class="machine"><div class="counters"><div class="loading"></div></div></div>`;
  const chosen = TABS.find(([id]) => id === query.get("tab")) ?? TABS[0];
  const Tab = chosen[2];
  const onKeyDown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = TABS[(TABS.indexOf(chosen) + step + TABS.length) % TABS.length];
    setQuery({ tab: next[0] });
    document.getElementById(`tab-${next[0]}`)?.focus();
  };
  return html`<div class="machine">
    <${Header} machine=${machine} value=${value} />
    <div class="tabs" role="tablist" aria-label="About this machine" onKeyDown=${onKeyDown}>
      ${TABS.map(([id, label]) => html`<button key=${id} id=${`tab-${id}`} role="tab" aria-selected=${id === chosen[0]}
        aria-controls="tab-panel" tabindex=${id === chosen[0] ? 0 : -1} onClick=${() => setQuery({ tab: id })}>${label}</button>`)}
    </div>
    <div class="tab-panel" id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${chosen[0]}`} tabindex="0">
      <${Tab} key=${chosen[0]} machine=${machine} value=${value} /></div>
  </div>`;
}
