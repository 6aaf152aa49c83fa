// SPDX-License-Identifier: Apache-2.0
// The search over everything: machines by name, MAC address, serial number or state, and pages.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js";
import { get } from "./api.js";
import { fleet, fleetOnce } from "./fleet/model.js";
import { Icon } from "./icons.js";
import { PAGES } from "./pages.js";
import { go } from "./route.js";
import { Dot } from "./states.js";
import { useSubject } from "./subject.js";

const MOST = 12;
const ASK_AFTER_MS = 200;

export function Palette({ onClose }) {
  const dialog = useRef();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [elsewhere, setElsewhere] = useState([]);
  const { rows, byId } = useSubject(fleet);
  useEffect(() => {
    dialog.current.showModal();
    fleetOnce();
  }, []);

  const sought = text.trim().toLowerCase();
  // What a row does not hold, the server looks for: addresses of cards, serial numbers.
  useEffect(() => {
    setElsewhere([]);
    if (sought.length < 4) return undefined;
    let isCurrent = true;
    const timer = setTimeout(() => lookElsewhere(sought)
      .then((others) => isCurrent && setElsewhere(others), () => null), ASK_AFTER_MS);
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [sought]);

  const found = useMemo(() => {
    const pages = PAGES.filter((page) => page.icon && page.label.toLowerCase().includes(sought))
      .map((page) => ({ key: page.path, label: page.label, note: "page", icon: page.icon, open: () => go(page.path) }));
    const machines = sought ? search(rows, sought) : [];
    const others = elsewhere.filter(({ uuid }) => !machines.some((row) => row.uuid === uuid))
      .map(({ uuid, note }) => ({ ...(byId.get(uuid) ?? { uuid, label: uuid }), note }));
    const shown = [...machines, ...others].map((row) => ({
      key: row.uuid, label: row.label, note: row.note ?? [row.provision_state, row.resource_class,
        row.owner].filter(Boolean).join(" · "),
      state: row.provision_state, open: () => go(`machines/${row.label}`),
    }));
    const states = sought ? stateFilters(rows, sought) : [];
    return [...shown, ...states, ...pages];
  }, [rows, sought, elsewhere]);

  const choose = (item) => { if (item) { onClose(); item.open(); } };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") { event.preventDefault(); choose(found[at]); }
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Search" onClose=${onClose}
    onMouseDown=${(event) => event.target === dialog.current && onClose()}>
    <input type="text" role="combobox" aria-label="Search machines and pages" aria-expanded="true" aria-controls="palette-list"
      aria-activedescendant=${found[at] ? `palette-${at}` : undefined}
      placeholder="Machine, MAC address, serial number, state…" autocomplete="off" spellcheck=${false} value=${text}
      onInput=${(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown=${onKeyDown} />
    <ul id="palette-list" role="listbox" aria-label="Found">
      ${found.map((item, index) => html`<li key=${item.key} id=${`palette-${index}`} role="option" aria-selected=${index === at}
      onMouseMove=${() => setAt(index)} onClick=${() => choose(item)}>
      ${item.state ? html`<${Dot} state=${item.state} />` : html`<${Icon} name=${item.icon} />`}<span class="cut">${item.label}
        </span><small>${item.note}</small></li>`)}</ul>
    ${sought && !found.length && html`<p class="none">Nothing is called “${text}”.</p>`}
    <footer><span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> open</span><span><kbd>Esc</kbd> close</span>
      </footer>
  </dialog>`;
}

function search(rows, sought) {
  const starts = [], holds = [];
  for (const row of rows) {
    if (row.label.toLowerCase().startsWith(sought)) starts.push(row);
    else if (row.sought.includes(sought)) holds.push(row);
    if (starts.length >= MOST) break;
  }
  return [...starts, ...holds].slice(0, MOST);
}

function stateFilters(rows, sought) {
  const states = new Map();
  for (const { provision_state: state } of rows) if (state.includes(sought)) states.set(state, (states.get(state) ?? 0) + 1);
  return [...states].map(([state, number]) => ({
    key: `state ${state}`, label: `All machines in ${state}`, note: String(number), state, open: () => go("fleet",
      { state: encodeURIComponent(state) }),
  }));
}

/** Machines by what their rows do not hold, each once. */
async function lookElsewhere(sought) {
  const { found } = await get(`/v1/ferrite/search?text=${encodeURIComponent(sought)}`);
  const notes = new Map(found.map(({ node_uuid: uuid, what, value }) => [uuid, `${what} ${value}`]));
  return [...notes].map(([uuid, note]) => ({ uuid, note }));
}
