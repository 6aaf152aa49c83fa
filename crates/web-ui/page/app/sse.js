// SPDX-License-Identifier: Apache-2.0
// Reads server-sent events with `fetch`. `EventSource` drops events of kinds that no listener names,
// hides HTTP errors, and does not notice a connection that has gone silent.

import { toApiError } from "./api.js";

/** The server sends a comment every 15 seconds on an idle stream. */
const SILENCE_MS = 45_000;

/** Splits a byte stream's text into events; keeps an incomplete event for the next call. */
export class EventParser {
  #rest = "";

  /**
   * @param {string} text
   * @returns {{ kind: string, data: string, id: string | null }[]}
   */
  push(text) {
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((event) => event !== null);
  }
}

/** @param {string} block */
function parseBlock(block) {
  let kind = "message";
  /** @type {string | null} */
  let id = null;
  const data = [];
  for (const line of block.split("\n")) {
    const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (name === "event") kind = value;
    else if (name === "id") id = value;
    else if (name === "data") data.push(value);
  }
  return data.length ? { kind, data: data.join("\n"), id } : null;
}

/**
 * Reads a stream until the server ends it, nothing arrives for 45 seconds, or `signal` aborts.
 * Fails with an `ApiError` if the server rejects the request.
 * @param {string} path
 * @param {object} options
 * @param {AbortSignal} options.signal
 * @param {() => void} options.onOpen
 * @param {(kind: string, data: string, id: string | null) => void} options.onEvent
 */
export async function readEvents(path, { signal, onOpen, onEvent }) {
  const headers = { Accept: "text/event-stream", "X-Ferrite-Page": "1" };
  const response = await fetch(path, { headers, credentials: "same-origin", signal });
  if (!response.ok) throw toApiError(response, await response.text());
  onOpen();
  if (!response.body) return;
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const silence = setTimeout(() => reader.cancel(), SILENCE_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done || signal.aborted) return;
    for (const { kind, data, id } of parser.push(value)) onEvent(kind, data, id);
  }
}
