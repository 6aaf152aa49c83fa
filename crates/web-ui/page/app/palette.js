// SPDX-License-Identifier: Apache-2.0
// The search dialog: machines by name, MAC address, serial number or state, and pages.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js";
import { get } from "./api.js";
import { caller, matchesAnyRule } from "./caller.js";
import { fleet, loadFleet } from "./fleet/model.js";
import { searchRows } from "./fleet/rows.js";
import { Icon } from "./icons.js";
import { useObservable } from "./observable.js";
import { PAGES } from "./pages.js";
import { navigate } from "./route.js";
import { Dot, stateLabel } from "./states.js";

const MAX_MACHINES = 12;
const SEARCH_DELAY_MS = 200;
const MIN_SERVER_SEARCH = 4;

/** @param {{ onClose: () => void }} props */
export function Palette({ onClose }) {
  const dialog = useRef();
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const [serverMatches, setServerMatches] = useState(
    /** @type {{ uuid: string, note: string }[]} */ ([]),
  );
  const { rows, byId } = useObservable(fleet);
  useEffect(() => {
    dialog.current.showModal();
    loadFleet();
  }, []);

  const needle = text.trim().toLowerCase();
  // The server searches what fleet rows do not contain: MAC addresses and serial numbers.
  useEffect(() => {
    setServerMatches([]);
    if (needle.length < MIN_SERVER_SEARCH) return undefined;
    let isCurrent = true;
    const timer = setTimeout(
      () =>
        searchServer(needle).then(
          (matches) => isCurrent && setServerMatches(matches),
          () => null,
        ),
      SEARCH_DELAY_MS,
    );
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [needle]);

  const items = useMemo(() => {
    const machines = needle ? searchRows(rows, needle, MAX_MACHINES) : [];
    const others = serverMatches.filter(
      ({ uuid }) => !machines.some((machine) => machine.uuid === uuid),
    );
    return [
      ...machines.map((row) => machineItem(row)),
      ...others.map(({ uuid, note }) => machineItem(byId.get(uuid) ?? { uuid, label: uuid }, note)),
      ...(needle ? stateItems(rows, needle) : []),
      ...pageItems(needle),
    ];
  }, [rows, needle, serverMatches]);

  const choose = (item) => {
    if (!item) return;
    onClose();
    item.open();
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((active + step + items.length) % Math.max(1, items.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(items[active]);
    }
  };
  return html`<dialog ref=${dialog} class="palette" aria-label="Search" onClose=${onClose}
    onMouseDown=${(event) => event.target === dialog.current && onClose()}>
    <input type="text" role="combobox" aria-label="Search machines and pages" aria-expanded="true" aria-controls="palette-list"
      aria-activedescendant=${items[active] ? `palette-${active}` : undefined}
      placeholder="Machine, MAC address, serial number, state…" autocomplete="off" spellcheck=${false} value=${text}
      onInput=${(event) => {
        setText(event.currentTarget.value);
        setActive(0);
      }} onKeyDown=${onKeyDown} />
    <ul id="palette-list" role="listbox" aria-label="Results">
      ${items.map(
        (
          item,
          index,
        ) => html`<li key=${item.key} id=${`palette-${index}`} role="option" aria-selected=${index === active}
      onMouseMove=${() => setActive(index)} onClick=${() => choose(item)}>
      ${item.state ? html`<${Dot} state=${item.state} />` : html`<${Icon} name=${item.icon} />`}
      <span class="cut">${item.label}</span><small>${item.note}</small></li>`,
      )}</ul>
    ${needle && !items.length && html`<p class="none">No results for “${text}”.</p>`}
    <footer><span><kbd>↑</kbd> <kbd>↓</kbd> select</span><span><kbd>Enter</kbd> open</span><span><kbd>Esc</kbd> close</span></footer>
  </dialog>`;
}

/**
 * @typedef {{ key: string, label: string, note: string, icon?: string, state?: string, open: () => void }} PaletteItem
 */

/**
 * @param {Partial<FleetRow> & { uuid: string, label: string }} row
 * @param {string} [note]
 * @returns {PaletteItem}
 */
function machineItem(row, note) {
  const state = row.provision_state && stateLabel(row.provision_state);
  return {
    key: row.uuid,
    label: row.label,
    note: note ?? [state, row.resource_class, row.owner].filter(Boolean).join(" · "),
    icon: "fleet",
    state: row.provision_state,
    open: () => navigate(`machines/${row.label}`),
  };
}

/**
 * @param {string} needle
 * @returns {PaletteItem[]}
 */
function pageItems(needle) {
  return PAGES.flatMap(({ path, label, icon, rules }) =>
    icon && label?.toLowerCase().includes(needle) && matchesAnyRule(caller.value, rules)
      ? [{ key: path, label, note: "page", icon, open: () => navigate(path) }]
      : [],
  );
}

/**
 * An item for each state that contains the text; it opens the fleet filtered by that state.
 * @param {FleetRow[]} rows
 * @param {string} needle
 * @returns {PaletteItem[]}
 */
function stateItems(rows, needle) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { provision_state: state } of rows)
    if (`${state} ${stateLabel(state)}`.includes(needle))
      counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => ({
    key: `state ${state}`,
    label: `All machines in state ${stateLabel(state)}`,
    note: String(number),
    state,
    open: () => navigate("fleet", { state: encodeURIComponent(state) }),
  }));
}

/**
 * @param {string} needle
 * @returns {Promise<{ uuid: string, note: string }[]>}
 */
async function searchServer(needle) {
  const { matches } = await get(`/v1/ferrite/search?text=${encodeURIComponent(needle)}`);
  const notes = new Map(
    matches.map(({ node_uuid: uuid, field, value }) => [uuid, `${field} ${value}`]),
  );
  return [...notes].map(([uuid, note]) => ({ uuid, note }));
}
