// SPDX-License-Identifier: Apache-2.0
// What stands for work to be done by itself: flavours, deploy templates, runbooks, inspection rules. One
// table says how each is listed, what a new one looks like, and how it is written.

import { html } from "../../vendor/preact-htm.js";
import { get, patch, post, put, remove } from "../api.js";
import { count } from "../sizes.js";

const code = (text) => html`<code>${text}</code>`;
const steps = (list) => html`<span class="cut-lines">${list.map((step) => `${step.interface}.${step.step}`).join(", ")}</span>`;
const path = (collection) => (one) => `/v1/${collection}/${encodeURIComponent(one)}`;

/** A collection of Ironic's: made by POST, changed by PATCH of what differs. */
function ironic(collection) {
  const where = path(collection);
  return {
    list: async () => (await get(`/v1/${collection}?detail=true&limit=1000`))[collection],
    create: (value) => post(`/v1/${collection}`, value),
    change: (one, before, value) => patch(where(one.uuid), differences(before, value)),
    remove: (one) => remove(where(one.uuid)),
  };
}

/** Runbooks, whose traits are written apart. */
function runbooks() {
  const { create, change, ...rest } = ironic("runbooks");
  const where = path("runbooks");
  const setTraits = (uuid, traits) => put(`${where(uuid)}/traits`, { traits });
  return {
    ...rest,
    create: async ({ traits, ...value }) => {
      const { uuid } = await create(value);
      if (!traits?.length) return;
      // Whole or not at all: a runbook without traits runs nowhere.
      await setTraits(uuid, traits).catch(async (error) => { await remove(where(uuid)); throw error; });
    },
    change: async (one, { traits: had, ...before }, { traits = [], ...value }) => {
      if (JSON.stringify(had) !== JSON.stringify(traits)) await setTraits(one.uuid, traits);
      if (differences(before, value).length) await change(one, before, value);
    },
  };
}

function differences(before, value) {
  const changed = Object.keys(value).filter((name) => JSON.stringify(value[name]) !== JSON.stringify(before[name]));
  const gone = Object.keys(before).filter((name) => !(name in value));
  return [...changed.map((name) => ({ op: before[name] === undefined || before[name] === null ? "add" : "replace",
    path: `/${name}`, value: value[name] })),
    ...gone.map((name) => ({ op: "remove", path: `/${name}` }))];
}

/** `written` names the fields that are edited; `example` is what a new one starts from. */
export const KINDS = [
  {
    id: "flavours", label: "Flavours", one: "flavour", matches: true,
    does: "Kinds of machines, told apart by what inspection finds: those that fit get a resource class, traits and properties.",
    written: ["description", "priority", "conditions", "resource_class", "traits", "properties", "capabilities", "overwrite"],
    nameOf: (one) => one.name, needsName: true,
    example: { priority: 10, conditions: [{ op: "ge", args: { values: ["{inventory[memory][physical_mb]}", 131072] } }],
      resource_class: "baremetal.large", traits: ["CUSTOM_LARGE"] },
    columns: [["Priority", (one) => one.priority, "right number"], ["Gives the class", (one) => one.resource_class ?? ""],
      ["Traits", (one) => one.traits.join(", ")], ["When", (one) => count(one.conditions.length, "condition")],
      ["", (one) => one.description ?? ""]],
    list: async () => (await get("/v1/ferrite/flavours")).flavours,
    create: (value, name) => put(path("ferrite/flavours")(name), value),
    change: (one, before, value) => put(path("ferrite/flavours")(one.name), value),
    remove: (one) => remove(path("ferrite/flavours")(one.name)),
  },
  {
    id: "templates", label: "Deploy templates", one: "deploy template",
    does: "Steps that a deployment runs as well, for instances that ask for the trait of the same name.",
    written: ["name", "steps", "extra"], nameOf: (one) => one.name,
    example: { name: "CUSTOM_HYPERTHREADING_OFF", steps: [{ interface: "bios", step: "apply_configuration", priority: 150,
      args: { settings: [{ name: "ProcHyperthreading", value: "Disabled" }] } }] },
    columns: [["Steps", (one) => steps(one.steps)]], ...ironic("deploy_templates"),
  },
  {
    id: "runbooks", label: "Runbooks", one: "runbook",
    does: "Approved lists of steps that may be run on machines that have one of their traits, by cleaning or service: “BIOS, RAID, firmware” on a machine's page has them.",
    written: ["name", "description", "traits", "disable_ramdisk", "public", "owner", "steps", "extra"], nameOf: (one) => one.name,
    example: { name: "CUSTOM_BIOS_RESET", description: "Back to the factory's settings", traits: ["CUSTOM_BIOS_RESET"],
      steps: [{ interface: "bios", step: "factory_reset", order: 1, args: {} }] },
    columns: [["Steps", (one) => steps(one.steps)], ["On machines with", (one) => one.traits.join(", ") || "none: it has no traits"],
      ["Owner", (one) => one.owner ?? (one.public ? "everybody" : "")],
      ["", (one) => one.description ?? ""]], ...runbooks(),
  },
  {
    id: "rules", label: "Inspection rules", one: "inspection rule",
    does: "What an inspection's findings are checked for, and what is done with the machine when they fit.",
    written: ["description", "phase", "priority", "sensitive", "conditions", "actions"],
    nameOf: (one) => one.description || one.uuid,
    example: { description: "Machines of Acme are storage", priority: 0,
      conditions: [{ op: "eq", args: { values: ["{inventory[system_vendor][manufacturer]}", "Acme"] } }],
      actions: [{ op: "set-attribute", args: { path: "/resource_class", value: "baremetal.storage" } }] },
    columns: [["Priority", (one) => one.priority, "right number"], ["Phase", (one) => one.phase ?? ""],
      ["When", (one) => (one.conditions ?? []).map((it) => it.op).join(", ") || (one.sensitive ? "hidden" : "always")],
      ["Does", (one) => ((one.actions ?? []).length ? one.actions.map((it) => code(it.op)) : one.sensitive ? "hidden" : "")]],
    ...ironic("inspection_rules"),
  },
];

/** The fields that may be written, as they are now. */
export function draftOf(kind, one) {
  return Object.fromEntries(kind.written.filter((name) => one[name] !== undefined && one[name] !== null).map((name) => [name,
    one[name]]));
}
