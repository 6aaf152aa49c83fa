// SPDX-License-Identifier: Apache-2.0
// Requests a deployment of an image that is set in the same step.

import { ApiError, get, nodePath, patch } from "../api.js";
import { showError } from "../toasts.js";

/** Fields that would override the given checksum. */
const CHECKSUM_FIELDS = ["image_checksum", "image_os_hash_algo", "image_os_hash_value"];
/** Secrets are masked in responses; a masked value cannot be restored. */
const MASK = "******";
/** @param {string} key */
const pointer = (key) => `/instance_info/${key}`;

/**
 * Sets the image in the node's `instance_info` (nothing if `image` is null) and calls `send`. If the
 * server rejects the request, the previous `instance_info` is restored.
 * @param {string} uuid
 * @param {Record<string, string> | null} image
 * @param {() => Promise<unknown>} send
 */
export async function requestDeploy(uuid, image, send) {
  if (!image) return send();
  const { instance_info: before } = await get(nodePath(uuid, "?fields=instance_info"));
  const outdated = image.image_source
    ? CHECKSUM_FIELDS.filter((key) => key in before && !(key in image))
    : [];
  await patch(nodePath(uuid), [
    ...Object.entries(image).map(([key, value]) => ({ op: "add", path: pointer(key), value })),
    ...outdated.map((key) => ({ op: "remove", path: pointer(key) })),
  ]);
  try {
    return await send();
  } catch (error) {
    // After other errors the request may still have been accepted.
    if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
      const keys = [...Object.keys(image), ...outdated];
      await patch(nodePath(uuid), restoreOperations(before, keys)).catch(showError);
    }
    throw error;
  }
}

/**
 * The operations that restore these keys of `instance_info`.
 * @param {Record<string, any>} before
 * @param {string[]} keys
 */
export function restoreOperations(before, keys) {
  return keys
    .filter((key) => !String(before[key]).includes(MASK))
    .map((key) =>
      key in before
        ? { op: "add", path: pointer(key), value: before[key] }
        : { op: "remove", path: pointer(key) },
    );
}
