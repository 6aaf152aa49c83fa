// SPDX-License-Identifier: Apache-2.0
// The position of a machine whose job waits in a queue.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { ferritePath, get } from "../api.js";

/** The position changes with other machines, whose events are not followed. */
const POLL_MS = 3000;

/**
 * The position, which is loaded again while it is shown.
 * @param {{ uuid: string }} props
 */
export function QueuePosition({ uuid }) {
  const [queue, setQueue] = useState(/** @type {JobQueuePosition | null} */ (null));
  useEffect(() => {
    let isStopped = false;
    const load = async () => {
      // Without the permission or a response, the wait is shown without the position.
      const explanation = await get(ferritePath(uuid, "/explain?target=abort")).catch(() => null);
      if (!isStopped) setQueue(explanation?.waiting?.queue ?? null);
    };
    load();
    const timer = setInterval(() => {
      if (!document.hidden) load();
    }, POLL_MS);
    return () => {
      isStopped = true;
      clearInterval(timer);
    };
  }, [uuid]);
  return (
    queue && html`: <strong class="number" data-queue-position>${positionText(queue)}</strong>`
  );
}

/** @param {JobQueuePosition} queue */
export const positionText = ({ name, position, length }) =>
  `position ${position} of ${length} (${name})`;
