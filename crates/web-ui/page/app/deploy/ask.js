// SPDX-License-Identifier: Apache-2.0
// Asks for a deployment of an image that is given with it.

import { get, nodePath, patch } from "../api.js";
import { complain } from "../toasts.js";

/** Other ways to say what the image's checksum is, which would count before the one that is given. */
const OTHER_CHECKSUMS = ["image_checksum", "image_os_hash_algo", "image_os_hash_value"];
const pointer = (key) => `/instance_info/${key}`;

/**
 * Tells the machine which image it gets (`{image_source, image_checksum}`; none if it knows already), and
 * asks. What refuses it finds the machine with what it was told before.
 */
export async function askToDeploy(uuid, image, ask) {
  if (!image) return ask();
  const { instance_info: before } = await get(nodePath(uuid, "?fields=instance_info"));
  const outdated = image.image_source ? OTHER_CHECKSUMS.filter((key) => key in before && !(key in image)) : [];
  await patch(nodePath(uuid), [
    ...Object.entries(image).map(([key, value]) => ({ op: "add", path: pointer(key), value })),
    ...outdated.map((key) => ({ op: "remove", path: pointer(key) })),
  ]);
  try {
    return await ask();
  } catch (error) {
    // Only a refusal says that nothing came of it.
    if (error.status >= 400 && error.status < 500) await patch(nodePath(uuid), restored(before, image, outdated)).catch(complain);
    throw error;
  }
}

/** What a secret is shown as; what is shown so cannot be given back. */
const MASK = "******";

function restored(before, image, outdated) {
  const changed = [...Object.keys(image), ...outdated].filter((key) => !String(before[key]).includes(MASK));
  return changed.map((key) => (key in before ? { op: "add", path: pointer(key), value: before[key] } : { op: "remove", path: pointer(key) }));
}
