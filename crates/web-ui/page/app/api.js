// SPDX-License-Identifier: Apache-2.0
// Requests to the API. Errors carry the server's own message.

import { markSignedOut } from "./session.js";

const HEADERS = {
  Accept: "application/json",
  "X-OpenStack-Ironic-API-Version": "latest",
  // Required by the server for requests with a session cookie, against cross-site request forgery.
  "X-Ferrite-Page": "1",
};

/** An error response, or a server that could not be reached (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Longer than any response takes; the slowest ones wait for an unreachable BMC. */
const TIMEOUT_MS = 120_000;

/**
 * Sends a request and returns the JSON of the response, or null if it has no body. With `keepalive`
 * the request is sent even if the tab is closed. With `hasPassword` a 401 is about the password in the
 * body, not about the session.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function request(method, path, body, { keepalive = false, hasPassword = false } = {}) {
  /** @type {Record<string, string>} */
  const headers = { ...HEADERS };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  let response, text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      keepalive,
      signal: abort.signal,
    });
    text = await response.text();
  } catch {
    throw new ApiError(0, abort.signal.aborted ? timeoutMessage(method) : "Server unreachable.");
  } finally {
    clearTimeout(timer);
  }
  if (!response.ok) throw toApiError(response, text, !hasPassword);
  return text ? JSON.parse(text) : null;
}

/** @param {string} method */
function timeoutMessage(method) {
  const outcome = method === "GET" ? "" : " The request may still take effect.";
  return `The server did not respond within ${TIMEOUT_MS / 60_000} minutes.${outcome}`;
}

/**
 * Converts an error response into the error to throw. A 401 ends the session unless `isAboutSession` is
 * false.
 * @param {Response} response
 * @param {string} text
 */
export function toApiError(response, text, isAboutSession = true) {
  if (response.status === 401 && isAboutSession) markSignedOut();
  return new ApiError(response.status, errorText(text) || `HTTP status ${response.status}.`);
}

/** @param {string} path */
export const get = (path) => request("GET", path);
/** @param {string} path @param {unknown} [body] */
export const put = (path, body) => request("PUT", path, body);
/** @param {string} path @param {unknown} [body] */
export const post = (path, body) => request("POST", path, body);
/** @param {string} path @param {unknown} [body] */
export const patch = (path, body) => request("PATCH", path, body);
/** @param {string} path @param {{ keepalive?: boolean }} [options] */
export const remove = (path, options) => request("DELETE", path, undefined, options);

/**
 * The path of a node, or of something below it, in the Ironic API.
 * @param {string} node
 */
export const nodePath = (node, rest = "") => `/v1/nodes/${encodeURIComponent(node)}${rest}`;

/**
 * The path of a node in Ferrite's own API.
 * @param {string} node
 */
export const ferritePath = (node, rest = "") =>
  `/v1/ferrite/nodes/${encodeURIComponent(node)}${rest}`;

/**
 * Like `get`, but returns null instead of failing with 404.
 * @param {string} path
 */
export async function getOrNull(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/**
 * Extracts the message of an error response. Ironic nests JSON in a JSON string.
 * @param {string} text
 * @returns {string}
 */
export function errorText(text) {
  /** @type {any} */
  let value = text;
  for (let depth = 0; depth < 3; depth++) {
    if (typeof value === "string") {
      try {
        value = JSON.parse(value);
      } catch {
        return value.slice(0, 2000);
      }
    }
    if (value === null || typeof value !== "object") return String(value);
    const inner =
      value.faultstring ??
      value.error_message ??
      value.error?.message ??
      value.message ??
      (value.description || value.title);
    if (inner === undefined) return JSON.stringify(value);
    value = inner;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}
