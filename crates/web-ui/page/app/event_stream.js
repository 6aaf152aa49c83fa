// SPDX-License-Identifier: Apache-2.0
// The browser's connection to the journal, shared by all views.

import { EventHub } from "./event_hub.js";
import { loadSession } from "./session.js";
import { readEvents } from "./sse.js";

/** @type {import("./event_hub.js").Transport["connect"]} */
function connect({ after, node }, { onOpen, onEvent, onClose }) {
  const query = new URLSearchParams();
  if (after !== null) query.set("after", String(after));
  if (node) query.set("node", node);
  const abort = new AbortController();
  readEvents(`/v1/ferrite/events?${query}`, { signal: abort.signal, onOpen, onEvent }).then(
    onClose,
    onClose,
  );
  return { close: () => abort.abort() };
}

export const events = new EventHub({
  connect,
  checkServer: loadSession,
  isHidden: () => document.hidden,
});

/** Shown in the navigation. */
export const { connection } = events;

addEventListener("offline", () => events.networkLost());
document.addEventListener("visibilitychange", () => events.visibilityChanged());
