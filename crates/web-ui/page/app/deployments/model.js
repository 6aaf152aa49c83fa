// SPDX-License-Identifier: Apache-2.0
// Deployments: the request for a new one from its form, changes of leases, and texts.

import { duration } from "../times.js";

/** Units of lease times in seconds. */
/** @type {[string, string][]} */
export const LEASE_UNITS = [
  ["3600", "hours"],
  ["86400", "days"],
  ["604800", "weeks"],
];

/** What happens at the end of a lease. */
/** @type {[string, string][]} */
export const END_ACTIONS = [
  ["undeploy", "remove the instance and release the machine"],
  ["notify", "only write a warning to log and journal"],
];

/** Each state of a deployment, with the provision state whose mark it gets. */
/** @type {Record<string, string>} */
const STATE_MARKS = {
  allocating: "enroll",
  reserved: "available",
  deploying: "deploying",
  active: "active",
  failed: "deploy failed",
  deleting: "deleting",
};

export const DEPLOYMENT_STATES = Object.keys(STATE_MARKS);

/** @param {string} state */
export const stateMark = (state) => STATE_MARKS[state] ?? "enroll";

/**
 * @typedef {object} DeploymentForm
 * @property {string} name
 * @property {string} project
 * @property {string} flavour
 * @property {string} resourceClass
 * @property {string} traits
 * @property {string} nodes
 * @property {string} image
 * @property {string} checksum
 * @property {string} keys
 * @property {string} userData
 * @property {string} leaseNumber empty for no end
 * @property {string} leaseUnit
 * @property {string} atEnd
 */

/** @type {DeploymentForm} */
export const EMPTY_FORM = {
  name: "",
  project: "",
  flavour: "",
  resourceClass: "",
  traits: "",
  nodes: "",
  image: "",
  checksum: "",
  keys: "",
  userData: "",
  leaseNumber: "",
  leaseUnit: "86400",
  atEnd: "undeploy",
};

/** @param {string} text */
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {string} text */
const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/**
 * The number of seconds; null if it is not a positive number.
 * @param {string} number
 * @param {string} unit
 */
export function leaseSeconds(number, unit) {
  const seconds = Math.round(Number(number.trim().replace(",", ".")) * Number(unit));
  return number.trim() && Number.isFinite(seconds) && seconds > 0 ? seconds : null;
}

/**
 * Why the form is invalid, or null. Empty required fields are no error, see `isComplete`.
 * @param {DeploymentForm} form
 */
export function formProblem(form) {
  if (/PRIVATE KEY/.test(form.keys))
    return "This is a private key. Enter the public key, from the file that ends in .pub.";
  const invalid = lines(form.keys).find((key) => !/(^|\s)(ssh-|ecdsa-|sk-)\S+\s+\S+/.test(key));
  if (invalid) return `Not a public key: ${invalid.slice(0, 40)}`;
  const isImage =
    /^(https?|file|oci|glance):\/\/\S+$/.test(form.image.trim()) ||
    /^[0-9a-f-]{36}$/i.test(form.image.trim());
  if (form.image.trim() && !isImage)
    return "The image must be an http, https, file, oci or glance URL, or the UUID of an image in Glance.";
  const lowercase = words(form.traits).find((name) => !/^[A-Z0-9_]+$/.test(name));
  if (lowercase) return `Traits have capital letters, digits and underscores: ${lowercase}`;
  if (form.leaseNumber.trim() && !leaseSeconds(form.leaseNumber, form.leaseUnit))
    return "The lease must be a positive number, or empty.";
  return null;
}

/**
 * Whether the form has an image and names a machine.
 * @param {DeploymentForm} form
 */
export const isComplete = (form) =>
  !!form.image.trim() &&
  !!(form.flavour || form.resourceClass.trim() || words(form.nodes).length > 0);

/**
 * The body of `POST /v1/ferrite/deployments`; empty fields are left out.
 * @param {DeploymentForm} form
 */
export function deploymentRequest(form) {
  const seconds = leaseSeconds(form.leaseNumber, form.leaseUnit);
  /** @type {Record<string, any>} */
  const body = {
    name: form.name.trim(),
    project: form.project,
    flavour: form.flavour,
    resource_class: form.resourceClass.trim(),
    traits: words(form.traits),
    nodes: words(form.nodes),
    image: form.image.trim(),
    checksum: form.checksum.trim(),
    ssh_keys: lines(form.keys),
    user_data: form.userData.trim() ? form.userData : "",
    lease: seconds && { duration: seconds, at_end: form.atEnd },
  };
  const isEmpty = (value) => !value || (Array.isArray(value) && value.length === 0);
  return Object.fromEntries(Object.entries(body).filter(([, value]) => !isEmpty(value)));
}

/**
 * The body of a change of a lease.
 * @param {{ mode: string, number: string, unit: string, atEnd: string }} form
 */
export function leaseChange({ mode, number, unit, atEnd }) {
  const seconds = leaseSeconds(number, unit);
  const end = {
    extend: { extend_by: seconds },
    from_now: { duration: seconds },
    unlimited: { unlimited: true },
  }[mode];
  return { lease: { ...end, at_end: atEnd } };
}

/**
 * The end of a lease in words, and whether it is within the warning time or over.
 * @param {{ expires_at: string | null, warn_before: number, at_end: string }} lease
 * @param {number} now
 * @returns {{ text: string, level: "" | "warn" | "bad" }}
 */
export function leaseText({ expires_at: end, warn_before: warning, at_end: action }, now) {
  if (!end) return { text: "no end", level: "" };
  const left = Date.parse(end) - now;
  if (left <= 0) {
    const text = `ended ${duration(Math.max(1000, -left))} ago`;
    return { text, level: action === "notify" ? "warn" : "bad" };
  }
  return {
    text: `in ${duration(Math.max(1000, left))}`,
    level: left <= warning * 1000 ? "warn" : "",
  };
}

/**
 * The name of a deployment, or its UUID.
 * @param {{ name: string | null, uuid: string }} deployment
 */
export const nameOf = ({ name, uuid }) => name ?? uuid;

/**
 * The name of the image without its path.
 * @param {any} deployment
 */
export function imageName({ instance }) {
  const source = String(instance?.instance_info?.image_source ?? "");
  return source.split("/").at(-1) || source;
}
