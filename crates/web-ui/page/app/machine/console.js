// SPDX-License-Identifier: Apache-2.0
// The machine's console: whether it is on, a terminal for it, and how else to reach it.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, put } from "../api.js";
import { Icon } from "../icons.js";
import { useAnswer } from "../loading.js";
import { complain } from "../toasts.js";
import { Panel } from "./panel.js";

export function Console({ machine, value: { node } }) {
  const answer = useAnswer(() => get(nodePath(node.uuid, "/states/console")),
    [node.uuid, node.console_enabled, node.console_interface]);
  const [busy, setBusy] = useState(false);
  const set = async (enabled) => {
    setBusy(true);
    await put(nodePath(node.uuid, "/states/console"), { enabled }).catch(complain);
    await machine.refresh().catch(complain);
    setBusy(false);
    answer.again();
  };
  const { data, error } = answer;
  const on = data?.console_enabled;
  return html`<${Panel} title="Console" icon="terminal"
    actions=${data && html`<button class="button ${on ? "" : "primary"}" disabled=${busy} onClick=${() => set(!on)}>
    ${on ? "Switch off" : "Switch on"}</button>`}>
    ${error && html`<div class="notice"><${Icon} name="terminal" /><span>${error.message}</span></div>
      <p class="quiet">The console interface is <code>${node.console_interface}
        </code>. It is one of the fields under “Configuration”.</p>`}
    ${data && !on && html`<p class="quiet">The console is off. Switching it on opens a port for it on the server, and what the
      machine prints is kept from then on.</p>`}
    ${on && html`<${LazyTerminal} node=${node.uuid} onOver=${() => { machine.refresh().catch(complain); answer.again(); }} />
      <${Reach} info=${data.console_info} />`}
  <//>`;
}

/** The terminal is fetched when somebody wants to see one. */
function LazyTerminal(properties) {
  const [module, setModule] = useState(null);
  useEffect(() => { import("./terminal/page.js").then(setModule, complain); }, []);
  return module ? html`<${module.Terminal} ...${properties} />` : html`<div class="loading"></div>`;
}

function Reach({ info }) {
  if (!info) return html`<p class="quiet">The console is on; the server does not say where.</p>`;
  const { hostname, port } = URL.canParse?.(info.url) ? new URL(info.url) : {};
  return html`<p class="quiet">It is at <code>${info.url}</code> (${info.type}), too.</p>
    ${info.url?.startsWith("tcp://") && html`<p class="quiet">To connect from a terminal on a machine that reaches the server:</p>
      <pre class="plan">${"  "}socat -,raw,echo=0,escape=0x1d tcp:${hostname}:${port}</pre>`}
    ${/^https?:/.test(info.url ?? "") && html`<a class="button" href=${info.url} target="_blank" rel="noreferrer">Open it</a>`}`;
}
