// SPDX-License-Identifier: Apache-2.0
// Starts a deployment: allocates machines of a class if none are named, sets the image of each, and
// requests the deployment.

import { ApiError, get, nodePath, post, put, remove } from "../api.js";
import { showError } from "../toasts.js";
import { imageFields } from "./image.js";
import { requestDeploy } from "./request_deploy.js";

/** Browsers allow six connections per server; one is the event stream. */
const MAX_REQUESTS = 5;
const POLL_MS = 300,
  MAX_POLLS = 100;

/** Allocations whose machines are not deployed yet; they are released when the tab is closed. */
/** @type {Set<string>} */
const unused = new Set();
addEventListener("pagehide", () => {
  for (const allocation of unused)
    remove(`/v1/allocations/${allocation}`, { keepalive: true }).catch(() => null);
});

/** @typedef {{ uuid: string, label: string, allocation?: string }} DeployTarget */

/**
 * Returns the UUIDs of the machines whose deployment was accepted, and the rejected machines.
 * @param {object} options
 * @param {import("./machines.js").MachineSelection} options.machines
 * @param {number} options.number
 * @param {FleetRow[]} options.rows
 * @param {import("./image.js").ImageSelection} options.image
 * @param {(name: string) => object | null} options.driveOf returns the config drive
 * @param {(text: string) => void} options.onProgress
 */
export async function startDeployment({ machines, number, rows, image, driveOf, onProgress }) {
  /** @type {import("./plan.js").FailedMachine[]} */
  const rejected = [];
  /** @type {DeployTarget[]} */
  let targets = rows.map(({ uuid, label }) => ({ uuid, label }));
  if (machines.mode === "class") {
    onProgress("Allocating machines…");
    const label = `a machine of class ${machines.resourceClass}`;
    const results = await mapConcurrently(Array(number).fill(label), () => allocate(machines));
    rejected.push(...failuresOf(results, (item) => item));
    targets = results.flatMap(({ value }) => value ?? []);
  }
  let done = 0;
  const results = await mapConcurrently(targets, async ({ uuid, label, allocation }) => {
    await releaseOnError(allocation, () => deploy(uuid, image, driveOf(label)));
    if (allocation) unused.delete(allocation);
    onProgress(`${++done} of ${targets.length} started`);
    return uuid;
  });
  rejected.push(...failuresOf(results, ({ label }) => label));
  return { started: results.flatMap(({ value }) => value ?? []), rejected };
}

/**
 * @param {string} uuid
 * @param {import("./image.js").ImageSelection} image
 * @param {object | null} drive
 */
function deploy(uuid, image, drive) {
  const body = { target: "active", ...(drive ? { configdrive: drive } : {}) };
  return requestDeploy(uuid, imageFields(image), () =>
    put(nodePath(uuid, "/states/provision"), body),
  );
}

/**
 * Allocates a machine and waits until the allocation is active.
 * @param {import("./machines.js").MachineSelection} machines
 * @returns {Promise<DeployTarget>}
 */
function allocate({ resourceClass, traits }) {
  // The client chooses the UUID, so that it can release an allocation whose response was lost.
  const allocation = newUuid();
  unused.add(allocation);
  return releaseOnError(allocation, async () => {
    await post("/v1/allocations", {
      uuid: allocation,
      resource_class: resourceClass,
      traits: traits.split(/[\s,]+/).filter(Boolean),
    });
    for (let poll = 0; poll < MAX_POLLS; poll++) {
      const {
        state,
        node_uuid: uuid,
        last_error: error,
      } = await get(`/v1/allocations/${allocation}`);
      if (state === "active") {
        const { name } = await get(nodePath(uuid, "?fields=name"));
        return { uuid, label: name ?? uuid, allocation };
      }
      if (state === "error") throw new Error(error ?? "No machine could be allocated.");
      await new Promise((resolve) => {
        setTimeout(resolve, POLL_MS);
      });
    }
    throw new Error("The allocation timed out.");
  });
}

/**
 * Runs `work`; if it fails, releases the allocation made for it.
 * @template T
 * @param {string | undefined} allocation
 * @param {() => Promise<T>} work
 */
async function releaseOnError(allocation, work) {
  try {
    return await work();
  } catch (error) {
    if (allocation) {
      // The server rejects this if the machine is being deployed after all.
      await remove(`/v1/allocations/${allocation}`).catch((other) => {
        if (!(other instanceof ApiError) || other.status !== 404) showError(other);
      });
      unused.delete(allocation);
    }
    throw error;
  }
}

/** A random UUID; `crypto.randomUUID` does not exist on pages served over plain HTTP. */
function newUuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/**
 * Calls `work` for all items, a few at a time; each result is a value or an error.
 * @template I, T
 * @param {I[]} items
 * @param {(item: I) => Promise<T>} work
 */
async function mapConcurrently(items, work) {
  /** @type {{ item: I, value?: T, error?: Error }[]} */
  const results = items.map((item) => ({ item }));
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < items.length; index = next++) {
      const result = results[index];
      await work(result.item).then(
        (value) => {
          result.value = value;
        },
        (error) => {
          result.error = error;
        },
      );
    }
  };
  await Promise.all(Array.from({ length: Math.min(MAX_REQUESTS, items.length) }, worker));
  return results;
}

/**
 * @template I
 * @param {{ item: I, error?: Error }[]} results
 * @param {(item: I) => string} labelOf
 */
const failuresOf = (results, labelOf) =>
  results.flatMap(({ item, error }) =>
    error ? [{ label: labelOf(item), why: error.message }] : [],
  );
