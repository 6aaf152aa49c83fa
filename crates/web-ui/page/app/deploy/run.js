// SPDX-License-Identifier: Apache-2.0
// Begins a deployment: reserves machines of a class if none are named, tells each what it becomes, and
// asks for it.

import { get, nodePath, patch, post, put } from "../api.js";
import { complain } from "../toasts.js";

/** Browsers allow six connections to a server; one is the event stream's. */
const AT_ONCE = 5;
const LOOK_EVERY_MS = 300, LOOKS = 100;

/** Gives the UUIDs of the machines that were asked; what was refused is said in its own words. */
export async function begin({ machines, rows, image, driveOf, tell }) {
  let targets = rows.map(({ uuid, label }) => ({ uuid, label }));
  if (machines.way === "class") {
    tell("Reserving machines…");
    targets = (await eachOf(Array.from({ length: machines.count }), () => reserve(machines))).filter(Boolean);
  }
  let done = 0;
  const asked = await eachOf(targets, async ({ uuid, label }) => {
    const outcome = await deploy(uuid, image, driveOf(label));
    tell(`${++done} of ${targets.length} asked`);
    return outcome;
  });
  return asked.filter(Boolean);
}

async function deploy(uuid, image, drive) {
  if (!image.keep) {
    const node = await get(nodePath(uuid, "?fields=instance_info"));
    const info = { ...node.instance_info, image_source: image.source };
    for (const old of ["image_checksum", "image_os_hash_algo", "image_os_hash_value"]) delete info[old];
    if (image.checksum) info.image_checksum = image.checksum;
    await patch(nodePath(uuid), [{ op: "add", path: "/instance_info", value: info }]);
  }
  await put(nodePath(uuid, "/states/provision"), { target: "active", ...(drive ? { configdrive: drive } : {}) });
  return uuid;
}

async function reserve({ resourceClass, traits }) {
  const made = await post("/v1/allocations", { resource_class: resourceClass, traits: traits.split(/[\s,]+/).filter(Boolean) });
  for (let look = 0; look < LOOKS; look++) {
    const now = await get(`/v1/allocations/${made.uuid}`);
    if (now.state === "active") {
      const { name } = await get(nodePath(now.node_uuid, "?fields=name"));
      return { uuid: now.node_uuid, label: name ?? now.node_uuid };
    }
    if (now.state === "error") throw new Error(now.last_error ?? "No machine could be reserved.");
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  throw new Error("No machine was reserved in time; the allocation goes on looking.");
}

/** Does the work for all, a few at a time; what fails is told and becomes null. */
async function eachOf(items, work) {
  const outcomes = new Array(items.length).fill(null);
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < items.length; index = next++) {
      outcomes[index] = await work(items[index]).catch((error) => { complain(error); return null; });
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, worker));
  return outcomes;
}
