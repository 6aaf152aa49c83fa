// SPDX-License-Identifier: Apache-2.0
// Begins a deployment: reserves machines of a class if none are named, tells each what it becomes, and
// asks for it.

import { get, nodePath, post, put, remove } from "../api.js";
import { complain } from "../toasts.js";
import { askToDeploy } from "./ask.js";

/** Browsers allow six connections to a server; one is the event stream's. */
const AT_ONCE = 5;
const LOOK_EVERY_MS = 300, LOOKS = 100;

/** Allocations whose machines have not been asked for yet: a tab that is closed gives them back. */
const unused = new Set();
addEventListener("pagehide", () => {
  for (const allocation of unused) remove(`/v1/allocations/${allocation}`, { keepalive: true }).catch(() => null);
});

/** Gives the UUIDs of the machines that were `asked`, and which were `refused`, each with a `label` and `why`. */
export async function begin({ machines, number, rows, image, driveOf, tell }) {
  let targets = rows.map(({ uuid, label }) => ({ uuid, label }));
  if (machines.way === "class") {
    tell("Reserving machines…");
    const nobody = { label: `a machine of class ${machines.resourceClass}` };
    targets = await eachOf(Array.from({ length: number }, () => nobody), () => reserve(machines));
  }
  const refused = targets.filter(({ why }) => why);
  targets = targets.filter(({ why }) => !why);
  let done = 0;
  const outcomes = await eachOf(targets, async ({ uuid, label, allocation }) => {
    const outcome = await orGiveBack(allocation, () => deploy(uuid, image, driveOf(label)));
    unused.delete(allocation);
    tell(`${++done} of ${targets.length} asked`);
    return outcome;
  });
  return { asked: outcomes.filter(({ why }) => !why).map(({ uuid }) => uuid), refused: [...refused, ...outcomes.filter(({ why }) => why)] };
}

async function deploy(uuid, image, drive) {
  const told = image.keep ? null : { image_source: image.source, ...(image.checksum ? { image_checksum: image.checksum } : {}) };
  await askToDeploy(uuid, told, () => put(nodePath(uuid, "/states/provision"),
    { target: "active", ...(drive ? { configdrive: drive } : {}) }));
  return { uuid };
}

function reserve({ resourceClass, traits }) {
  // The page chooses the UUID, so that it can give back even what it got no answer about.
  const allocation = newUuid();
  unused.add(allocation);
  return orGiveBack(allocation, async () => {
    await post("/v1/allocations", { uuid: allocation, resource_class: resourceClass,
      traits: traits.split(/[\s,]+/).filter(Boolean) });
    for (let look = 0; look < LOOKS; look++) {
      const now = await get(`/v1/allocations/${allocation}`);
      if (now.state === "active") {
        const { name } = await get(nodePath(now.node_uuid, "?fields=name"));
        return { uuid: now.node_uuid, label: name ?? now.node_uuid, allocation };
      }
      if (now.state === "error") throw new Error(now.last_error ?? "No machine could be reserved.");
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
    throw new Error("No machine was reserved in time.");
  });
}

/** Does the work; if it fails, an allocation made for it is given back, so that no machine stays reserved for nothing. */
async function orGiveBack(allocation, work) {
  try {
    return await work();
  } catch (error) {
    // The server refuses this while the machine is being deployed after all.
    if (allocation) await remove(`/v1/allocations/${allocation}`).catch((other) => { if (other.status !== 404) complain(other); });
    unused.delete(allocation);
    throw error;
  }
}

/** A random UUID; crypto.randomUUID is not there on pages that come over plain HTTP. */
function newUuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Does the work for all, a few at a time; what fails keeps its label and gets a `why`. */
async function eachOf(items, work) {
  const outcomes = new Array(items.length);
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < items.length; index = next++) {
      outcomes[index] = await work(items[index]).catch((error) => ({ label: items[index].label, why: error.message }));
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, worker));
  return outcomes;
}
