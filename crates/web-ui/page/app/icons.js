// SPDX-License-Identifier: Apache-2.0
// Icons on a 16 px grid, drawn for this application.

import { html } from "../vendor/preact-htm.js";

/** @type {Record<string, string>} */
const PATHS = {
  fleet: "M2.5 3.5h4v3.5h-4zM9.5 3.5h4v3.5h-4zM2.5 9h4v3.5h-4zM9.5 9h4v3.5h-4z",
  search: "M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10ZM10.7 10.7 14 14",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M3.2 12.8l1.1-1.1M11.7 4.3l1.1-1.1",
  moon: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8Z",
  table: "M2 3.5h12v9H2zM2 6.5h12M2 9.5h12M6.5 6.5v6",
  cross: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  warning: "M8 2.2 14.6 13.5H1.4ZM8 6.4v3.4M8 11.6v.2",
  wrench:
    "M9.6 6.4 3.4 12.6a1.2 1.2 0 0 1-1.7-1.7l6.2-6.2a3.4 3.4 0 0 1 4.4-3.4L10 3.6l.4 2 2 .4 2.3-2.3a3.4 3.4 0 0 1-5.1 2.7Z",
  power: "M8 1.8v6M4.7 4a5.2 5.2 0 1 0 6.6 0",
  chevron: "M4.5 6.5 8 10l3.5-3.5",
  left: "M10 3.5 5.5 8l4.5 4.5",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.8V8l2.2 1.6",
  lease: "M3 3.500h10v9.500H3zM3 6.500h10M5.5 2v2.500M10.5 2v2.500M6 9.800l1.500 1.500 2.700-2.800",
  user: "M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8ZM2.8 13.8c.5-2.7 2.6-4 5.2-4s4.7 1.3 5.2 4",
  out: "M6.5 2.500H3v11h3.500M10.5 5l3 3-3 3M13.5 8H6.5",
  lock: "M3.5 7.500h9v6h-9zM5.5 7.500V5a2.5 2.5 0 0 1 5 0v2.5",
  plus: "M8 3v10M3 8h10",
  down: "M8 2.500v8M4.5 7.5 8 11l3.5-3.500M3 13.500h10",
  refresh: "M13 8a5 5 0 1 1-1.5-3.600M13.2 2.200v3h-3",
  play: "M5 3.200v9.600L12.5 8Z",
  terminal: "M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10h3",
  list: "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.1M2.5 8h.1M2.5 12h.1",
  disk: "M2.5 4.500h11v7h-11zM10.5 9.500h1",
  chip: "M4.5 4.500h7v7h-7zM6.5 1.800v2.700M9.5 1.800v2.700M6.5 11.500v2.700M9.5 11.500v2.700M1.8 6.500h2.700M1.8 9.500h2.700M11.5 6.500h2.700M11.5 9.500h2.7",
  memory: "M1.8 5h12.400v5H1.800zM4 10v2M6.7 10v2M9.3 10v2M12 10v2M4.5 7v1M8 7v1M11.5 7v1",
  network: "M6 2h4v3.500H6zM1.5 10.500h4V14h-4zM10.5 10.500h4V14h-4zM8 5.500V8M3.5 10.500V8h9v2.5",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.500 8 1.500 8ZM8 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z",
  link: "M6.7 9.3a2.6 2.6 0 0 0 3.700 0l2.200-2.200a2.600 2.600 0 0 0-3.700-3.700l-.9.9M9.300 6.700a2.600 2.600 0 0 0-3.700 0L3.400 8.900a2.600 2.600 0 0 0 3.700 3.700l.9-.9",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
};

/**
 * CSS may set another size; without the attributes an icon would fill its container.
 * @param {{ name: string }} props
 */
export function Icon({ name }) {
  const strokeWidth = name === "more" || name === "list" ? 1.9 : 1.4;
  return html`<svg viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width=${strokeWidth}
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}

export function Logo() {
  return html`<svg viewBox="0 0 18 18" width="18" height="18" aria-hidden="true" focusable="false"><g fill="var(--accent)">
    <rect x="0" y="0" width="18" height="4.6" rx="1.4" />
    <rect x="0" y="6.7" width="13" height="4.6" rx="1.4" opacity=".82" />
    <rect x="0" y="13.4" width="7" height="4.6" rx="1.4" opacity=".62" /></g></svg>`;
}
