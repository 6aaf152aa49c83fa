// SPDX-License-Identifier: Apache-2.0
// The resources of the automation page: flavours, deploy templates, runbooks and inspection rules. Each
// kind defines how it is listed, created and changed.

import { html } from "../../vendor/preact-htm.js";
import { get, patch, post, put, remove } from "../api.js";
import { count } from "../sizes.js";

const code = (text) => html`<code>${text}</code>`;
const steps = (list) =>
  html`<span class="cut-lines">${list.map((step) => `${step.interface}.${step.step}`).join(", ")}</span>`;
/** @type {(collection: string) => (ident: string) => string} */
const itemPath = (collection) => (ident) => `/v1/${collection}/${encodeURIComponent(ident)}`;

/**
 * @typedef {object} ResourceKind
 * @property {string} id
 * @property {string} label
 * @property {string} singular
 * @property {string} description
 * @property {string[]} fields the fields that can be edited
 * @property {(item: any) => string} nameOf
 * @property {boolean} [needsName] the name of a new item is not one of the fields
 * @property {boolean} [hasMatches]
 * @property {{ list: string[], create: string, update: string, remove: string }} rules policy rules
 * @property {object} example the initial content of a new item
 * @property {[string, (item: any) => unknown, string?][]} columns
 * @property {() => Promise<any[]>} list
 * @property {(value: any, name: string) => Promise<unknown>} create
 * @property {(item: any, before: any, value: any) => Promise<unknown>} change
 * @property {(item: any) => Promise<unknown>} remove
 */

/**
 * Requests for a collection of the Ironic API: created by POST, changed by PATCH.
 * @param {string} collection
 */
function ironicCollection(collection) {
  const path = itemPath(collection);
  return {
    list: async () => (await get(`/v1/${collection}?detail=true&limit=1000`))[collection],
    create: (value) => post(`/v1/${collection}`, value),
    change: (item, before, value) => patch(path(item.uuid), patchOperations(before, value)),
    remove: (item) => remove(path(item.uuid)),
  };
}

/** Requests for runbooks, whose traits have a resource of their own. */
function runbookCollection() {
  const { create, change, ...rest } = ironicCollection("runbooks");
  const path = itemPath("runbooks");
  const setTraits = (uuid, traits) => put(`${path(uuid)}/traits`, { traits });
  return {
    ...rest,
    create: async ({ traits, ...value }) => {
      const { uuid } = await create(value);
      if (!traits?.length) return;
      // A runbook without traits runs on no machine, so it is removed if its traits are rejected.
      await setTraits(uuid, traits).catch(async (error) => {
        await remove(path(uuid));
        throw error;
      });
    },
    change: async (item, { traits: oldTraits, ...before }, { traits = [], ...value }) => {
      if (JSON.stringify(oldTraits) !== JSON.stringify(traits)) await setTraits(item.uuid, traits);
      if (patchOperations(before, value).length) await change(item, before, value);
    },
  };
}

/**
 * The JSON patch from one object to another.
 * @param {Record<string, any>} before
 * @param {Record<string, any>} value
 */
export function patchOperations(before, value) {
  const changed = Object.keys(value).filter(
    (name) => JSON.stringify(value[name]) !== JSON.stringify(before[name]),
  );
  const removed = Object.keys(before).filter((name) => !(name in value));
  return [
    ...changed.map((name) => ({
      op: before[name] === undefined || before[name] === null ? "add" : "replace",
      path: `/${name}`,
      value: value[name],
    })),
    ...removed.map((name) => ({ op: "remove", path: `/${name}` })),
  ];
}

/** @type {ResourceKind[]} */
export const RESOURCE_KINDS = [
  {
    id: "flavours",
    rules: {
      list: ["ferrite:flavour:get"],
      create: "ferrite:flavour:update",
      update: "ferrite:flavour:update",
      remove: "ferrite:flavour:update",
    },
    label: "Flavours",
    singular: "flavour",
    hasMatches: true,
    description:
      "Classes of machines, defined by conditions over the inventory. Matching machines get a resource class, traits and properties.",
    fields: [
      "description",
      "priority",
      "conditions",
      "resource_class",
      "traits",
      "properties",
      "capabilities",
      "overwrite",
    ],
    nameOf: (item) => item.name,
    needsName: true,
    example: {
      priority: 10,
      conditions: [{ op: "ge", args: { values: ["{inventory[memory][physical_mb]}", 131072] } }],
      resource_class: "baremetal.large",
      traits: ["CUSTOM_LARGE"],
    },
    columns: [
      ["Priority", (item) => item.priority, "right number"],
      ["Resource class", (item) => item.resource_class ?? ""],
      ["Traits", (item) => item.traits.join(", ")],
      ["Conditions", (item) => count(item.conditions.length, "condition")],
      ["Description", (item) => item.description ?? ""],
    ],
    list: async () => (await get("/v1/ferrite/flavours")).flavours,
    create: (value, name) => put(itemPath("ferrite/flavours")(name), value),
    change: (item, _before, value) => put(itemPath("ferrite/flavours")(item.name), value),
    remove: (item) => remove(itemPath("ferrite/flavours")(item.name)),
  },
  {
    id: "templates",
    rules: {
      list: ["baremetal:deploy_template:get"],
      create: "baremetal:deploy_template:create",
      update: "baremetal:deploy_template:update",
      remove: "baremetal:deploy_template:delete",
    },
    label: "Deploy templates",
    singular: "deploy template",
    description:
      "Additional deploy steps for instances that request the trait with the template's name.",
    fields: ["name", "steps", "extra"],
    nameOf: (item) => item.name,
    example: {
      name: "CUSTOM_HYPERTHREADING_OFF",
      steps: [
        {
          interface: "bios",
          step: "apply_configuration",
          priority: 150,
          args: { settings: [{ name: "ProcHyperthreading", value: "Disabled" }] },
        },
      ],
    },
    columns: [["Steps", (item) => steps(item.steps)]],
    ...ironicCollection("deploy_templates"),
  },
  {
    id: "runbooks",
    rules: {
      list: ["baremetal:runbook:list_all", "baremetal:runbook:list"],
      create: "baremetal:runbook:create",
      update: "baremetal:runbook:update",
      remove: "baremetal:runbook:delete",
    },
    label: "Runbooks",
    singular: "runbook",
    description:
      "Approved lists of clean or service steps for machines with one of their traits. Run them in the tab “BIOS, RAID, firmware” of a machine.",
    fields: [
      "name",
      "description",
      "traits",
      "disable_ramdisk",
      "public",
      "owner",
      "steps",
      "extra",
    ],
    nameOf: (item) => item.name,
    example: {
      name: "CUSTOM_BIOS_RESET",
      description: "Reset the BIOS to factory settings",
      traits: ["CUSTOM_BIOS_RESET"],
      steps: [{ interface: "bios", step: "factory_reset", order: 1, args: {} }],
    },
    columns: [
      ["Steps", (item) => steps(item.steps)],
      ["Traits", (item) => item.traits.join(", ") || "none: runs on no machine"],
      ["Owner", (item) => item.owner ?? (item.public ? "all projects" : "")],
      ["Description", (item) => item.description ?? ""],
    ],
    ...runbookCollection(),
  },
  {
    id: "rules",
    rules: {
      list: ["baremetal:inspection_rule:list_all"],
      create: "baremetal:inspection_rule:create",
      update: "baremetal:inspection_rule:update",
      remove: "baremetal:inspection_rule:delete",
    },
    label: "Inspection rules",
    singular: "inspection rule",
    description: "Conditions over inspection data, and the actions on machines that match them.",
    fields: ["description", "phase", "priority", "sensitive", "conditions", "actions"],
    nameOf: (item) => item.description || item.uuid,
    example: {
      description: "Machines of Acme are storage",
      priority: 0,
      conditions: [
        { op: "eq", args: { values: ["{inventory[system_vendor][manufacturer]}", "Acme"] } },
      ],
      actions: [
        { op: "set-attribute", args: { path: "/resource_class", value: "baremetal.storage" } },
      ],
    },
    columns: [
      ["Priority", (item) => item.priority, "right number"],
      ["Phase", (item) => item.phase ?? ""],
      ["Conditions", (item) => ruleParts(item.conditions, item.sensitive ? "hidden" : "always")],
      ["Actions", (item) => ruleParts(item.actions, item.sensitive ? "hidden" : "")],
    ],
    ...ironicCollection("inspection_rules"),
  },
];

const ruleParts = (list, otherwise) => (list?.length ? list.map(({ op }) => code(op)) : otherwise);

/**
 * The fields of an item that can be edited and have a value.
 * @param {ResourceKind} kind
 * @param {Record<string, any>} item
 */
export function editableFieldsOf(kind, item) {
  const present = kind.fields.filter((name) => item[name] !== undefined && item[name] !== null);
  return Object.fromEntries(present.map((name) => [name, item[name]]));
}
