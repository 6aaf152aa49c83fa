// SPDX-License-Identifier: Apache-2.0
// Provision states as people see them: which family (and so which colour) each belongs to, and
// whether the machine is busy in it. Which verb is possible in which state the server tells.

import { html } from "../vendor/preact-htm.js";

/** The families in the order in which they are shown. */
export const FAMILIES = ["failed", "hold", "deploy", "clean", "inspect", "rescue", "service", "active",
  "available", "manageable", "new"];

const FAMILY = {
  "enroll": "new", "verifying": "new",
  "manageable": "manageable",
  "inspecting": "inspect", "inspect wait": "inspect",
  "cleaning": "clean", "clean wait": "clean", "deleting": "clean",
  "available": "available",
  "deploying": "deploy", "wait call-back": "deploy", "adopting": "deploy",
  "active": "active",
  "rescue": "rescue", "rescuing": "rescue", "rescue wait": "rescue", "unrescuing": "rescue",
  "servicing": "service", "service wait": "service",
};

const RESTS = new Set(["enroll", "manageable", "available", "active", "rescue", "error"]);

/** The family of a state; a state we have never heard of counts as new. */
export function familyOf(state) {
  if (!state) return "new";
  if (state.endsWith("failed") || state === "error") return "failed";
  if (state.endsWith("hold")) return "hold";
  return FAMILY[state] ?? "new";
}

/** Whether something is going on in this state. */
export function isBusy(state) {
  return !RESTS.has(state) && !state.endsWith("failed") && !state.endsWith("hold");
}

/** Whether a job ended badly. */
export const isFailed = (state) => familyOf(state) === "failed";

/** The order of a state among others: by family, then by name. */
export function stateOrder(state) {
  return `${String(FAMILIES.indexOf(familyOf(state))).padStart(2, "0")}${state}`;
}

/** A state with its mark: a square at rest, a turning circle when busy. */
export function State({ state, target }) {
  return html`<span class="state"><${Dot} state=${state} /><span>${state}</span>
    ${target && target !== state && html`<span class="faint"> → ${target}</span>`}</span>`;
}

export function Dot({ state }) {
  return html`<i class="dot family-${familyOf(state)} ${isBusy(state) ? "busy" : ""}"></i>`;
}
