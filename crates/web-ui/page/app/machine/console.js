// SPDX-License-Identifier: Apache-2.0
// The machine's console: enabling it, a terminal, and its address for other clients.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, put } from "../api.js";
import { caller, denial } from "../caller.js";
import { useFetch } from "../fetching.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { showError } from "../toasts.js";
import { Panel } from "./panel.js";

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Console({ machine, value: { node } }) {
  const { data, error, reload } = useFetch(
    () => get(nodePath(node.uuid, "/states/console")),
    [node.uuid, node.console_enabled, node.console_interface],
  );
  const [busy, setBusy] = useState(false);
  const reason = denial(useObservable(caller), "baremetal:node:set_console_state", node);
  const setEnabled = async (enabled) => {
    setBusy(true);
    await put(nodePath(node.uuid, "/states/console"), { enabled }).catch(showError);
    await machine.refresh().catch(showError);
    setBusy(false);
    reload();
  };
  const onEnded = () => {
    machine.refresh().catch(showError);
    reload();
  };
  const isEnabled = data?.console_enabled;
  return html`<${Panel} title="Console" icon="terminal"
    actions=${
      data &&
      html`<button class="button ${isEnabled ? "" : "primary"}" disabled=${busy || !!reason} title=${reason ?? undefined}
      onClick=${() => setEnabled(!isEnabled)}>
    ${isEnabled ? "Disable" : "Enable"}</button>`
    }>
    ${
      error &&
      html`<div class="notice"><${Icon} name="terminal" /><span>${error.message}</span></div>
      <p class="quiet">The console interface is <code>${node.console_interface}</code>; change it in the tab “Configuration”.</p>`
    }
    ${
      data &&
      !isEnabled &&
      html`<p class="quiet">The console is disabled. Enabling it opens a port for it on the server and records its output.</p>`
    }
    ${
      isEnabled &&
      html`<${LazyTerminal} node=${node.uuid} onEnded=${onEnded} />
      <${ConsoleAddress} info=${data.console_info} />`
    }
  <//>`;
}

/** The terminal is loaded on first use. */
function LazyTerminal(properties) {
  const [module, setModule] = useState(/** @type {any} */ (null));
  useEffect(() => {
    import("./terminal/page.js").then(setModule, showError);
  }, []);
  return module ? html`<${module.Terminal} ...${properties} />` : html`<div class="loading"></div>`;
}

/** @param {{ info: any }} props */
function ConsoleAddress({ info }) {
  if (!info)
    return html`<p class="quiet">The console is enabled; the server reports no address.</p>`;
  const url = URL.canParse(info.url) ? new URL(info.url) : null;
  return html`<p class="quiet">Also available at <code>${info.url}</code> (${info.type}).</p>
    ${
      url?.protocol === "tcp:" &&
      html`<p class="quiet">To connect from a shell on a host that reaches the server:</p>
      <pre class="plan">${"  "}socat -,raw,echo=0,escape=0x1d tcp:${url.hostname}:${url.port}</pre>`
    }
    ${url?.protocol.startsWith("http") && html`<a class="button" href=${info.url} target="_blank" rel="noreferrer">Open</a>`}`;
}
