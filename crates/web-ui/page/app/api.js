// SPDX-License-Identifier: Apache-2.0
// Requests to the API, and its refusals in its own words.

import { signedOut } from "./session.js";

const HEADERS = {
  Accept: "application/json",
  "X-OpenStack-Ironic-API-Version": "latest",
  // Says that this page asks, so that no other site can make the browser do it in our name.
  "X-Ferrite-Page": "1",
};

/** What the API said no to, or that it could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Longer than any answer takes; the slowest wait for a BMC that does not answer itself. */
const PATIENCE_MS = 120_000;

/** Sends a request; gives the JSON that comes back, or null. With `keepalive` it is sent even if the tab is closed. */
export async function ask(method, path, body, { keepalive = false } = {}) {
  const headers = { ...HEADERS };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), PATIENCE_MS);
  let answer, text;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      keepalive,
      signal: patience.signal,
    });
    text = await answer.text();
  } catch {
    throw new ApiError(0, !patience.signal.aborted ? "The server cannot be reached."
      : `The server has not answered for ${PATIENCE_MS / 60_000} minutes.${method === "GET" ? "" : " What was asked may still happen."}`);
  } finally {
    clearTimeout(timer);
  }
  if (!answer.ok) throw refusalOf(answer, text);
  return text ? JSON.parse(text) : null;
}

/** What an answer that is a refusal says, to be thrown. */
export function refusalOf(answer, text) {
  if (answer.status === 401) signedOut();
  return new ApiError(answer.status, words(text) || `The server answered ${answer.status}.`);
}

export const get = (path) => ask("GET", path);
export const put = (path, body) => ask("PUT", path, body);
export const post = (path, body) => ask("POST", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const remove = (path, options) => ask("DELETE", path, undefined, options);

/** The path of a node, or of something below it. */
export const nodePath = (node, rest = "") => `/v1/nodes/${encodeURIComponent(node)}${rest}`;

/** The path of what Ferrite itself knows about a node. */
export const ferritePath = (node, rest = "") => `/v1/ferrite/nodes/${encodeURIComponent(node)}${rest}`;

/** Something that may not be there: null instead of a refusal with 404. */
export async function getIfThere(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** The sentence inside an error: Ironic wraps it twice. */
function words(text) {
  let value = text;
  for (let depth = 0; depth < 3; depth++) {
    if (typeof value === "string") {
      try { value = JSON.parse(value); } catch { return value.slice(0, 2000); }
    }
    if (value === null || typeof value !== "object") return String(value);
    const inner = value.faultstring ?? value.error_message ?? value.error?.message ?? value.message
      ?? (value.description || value.title);
    if (inner === undefined) return JSON.stringify(value);
    value = inner;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}
