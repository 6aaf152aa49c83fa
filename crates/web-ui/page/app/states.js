// SPDX-License-Identifier: Apache-2.0
// Provision states as users see them: their family, which determines the colour, and their label.

import { html } from "../vendor/preact-htm.js";
import { PROVISION_STATES } from "./generated.js";

/**
 * The families in display order.
 * @type {StateFamily[]}
 */
export const FAMILIES = [
  "failed",
  "hold",
  "deploy",
  "clean",
  "inspect",
  "rescue",
  "service",
  "active",
  "available",
  "manageable",
  "new",
];

/** States whose Ironic name is unclear. */
/** @type {Partial<Record<ProvisionState, string>>} */
const LABELS = {
  "wait call-back": "waiting for agent",
};

/** @param {string | null | undefined} state */
const known = (state) => PROVISION_STATES[/** @type {ProvisionState} */ (state)];

/**
 * The family of a state; an unknown state counts as new.
 * @param {string | null | undefined} state
 * @returns {StateFamily}
 */
export const familyOf = (state) => known(state)?.family ?? "new";

/**
 * Whether a job works or waits in this state.
 * @param {string} state
 */
export function isBusy(state) {
  const found = known(state)?.class;
  return found === "working" || found === "waiting";
}

/**
 * Whether a job ended in this state: the stable ones and those after a failure.
 * @param {string} state
 */
export function isJobEnd(state) {
  const found = known(state)?.class;
  return found === "stable" || found === "failed";
}

/** @param {string} state */
export const isFailed = (state) => familyOf(state) === "failed";

/**
 * The label of a state, which is Ironic's name unless that is unclear.
 * @param {string} state
 */
export const stateLabel = (state) => LABELS[/** @type {ProvisionState} */ (state)] ?? state;

/**
 * A sort key: by family, then by name.
 * @param {string} state
 */
export function stateOrder(state) {
  return `${String(FAMILIES.indexOf(familyOf(state))).padStart(2, "0")}${state}`;
}

/**
 * A state with its mark: a square if stable, a turning circle if busy.
 * @param {{ state: string, target?: string | null }} props
 */
export function State({ state, target = null }) {
  return html`<span class="state" title=${stateLabel(state) === state ? undefined : state}><${Dot} state=${state} /><span>${stateLabel(state)}</span>
    ${target && target !== state && html`<span class="faint"> → ${stateLabel(target)}</span>`}</span>`;
}

/** @param {{ state: string }} props */
export function Dot({ state }) {
  return html`<i class="dot family-${familyOf(state)} ${isBusy(state) ? "busy" : ""}"></i>`;
}
