// SPDX-License-Identifier: Apache-2.0
// The connection of a terminal to a console: output as it arrives, and input in order.

import { ApiError, ferritePath, post } from "../../api.js";
import { nextRetryDelay } from "../../event_hub.js";
import { readEvents } from "../../sse.js";

/** Characters per input request. */
const MAX_INPUT = 1000;

/** @typedef {"connecting" | "live" | "lost" | "ended" | "rejected"} ConsoleState */

export class ConsoleConnection {
  /** @type {string} */
  #path;
  /** @type {(output: { isStart?: boolean, text?: string }) => void} */
  #onOutput;
  /** @type {(state: ConsoleState, message?: string) => void} */
  #onState;
  /** @type {(message: string) => void} */
  #onInputError;
  /** @type {AbortController | null} */
  #stream = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  #delay = 0;
  #input = "";
  #isSending = false;
  #isClosed = false;

  /**
   * Follows a node's console.
   * @param {string} node
   * @param {object} handlers
   * @param {(output: { isStart?: boolean, text?: string }) => void} handlers.onOutput gets `isStart`
   *   before the recorded output is sent again, and then `text`
   * @param {(state: ConsoleState, message?: string) => void} handlers.onState
   * @param {(message: string) => void} handlers.onInputError
   */
  constructor(node, { onOutput, onState, onInputError }) {
    this.#path = ferritePath(node, "/console");
    this.#onOutput = onOutput;
    this.#onState = onState;
    this.#onInputError = onInputError;
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#open();
  }

  close() {
    this.#isClosed = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#disconnect();
  }

  /**
   * Sends input. Requests are sequential, which keeps the order.
   * @param {string} text
   */
  async type(text) {
    this.#input += text;
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#input && !this.#isClosed) {
      const chunk = [...this.#input].slice(0, MAX_INPUT).join("");
      this.#input = this.#input.slice(chunk.length);
      try {
        await post(this.#path, { text: chunk });
      } catch (error) {
        // Input must not arrive later than it was meant, so the rest is dropped.
        this.#input = "";
        this.#onInputError(error instanceof Error ? error.message : String(error));
      }
    }
    this.#isSending = false;
  }

  #onVisibility = () => {
    if (document.hidden) this.#disconnect();
    else if (!this.#stream) this.#open();
  };

  #disconnect() {
    clearTimeout(this.#retry);
    this.#stream?.abort();
    this.#stream = null;
  }

  async #open() {
    this.#disconnect();
    if (document.hidden) return;
    const stream = new AbortController();
    this.#stream = stream;
    this.#onState("connecting");
    let hasEnded = false,
      isStart = true;
    try {
      await readEvents(this.#path, {
        signal: stream.signal,
        onOpen: () => {
          this.#onState("live");
          this.#delay = 0;
        },
        onEvent: (kind, data) => {
          if (kind === "end") hasEnded = true;
          if (kind !== "output") return;
          // The recorded output is sent again; without any, the displayed output stays.
          if (isStart) this.#onOutput({ isStart });
          isStart = false;
          this.#onOutput({ text: JSON.parse(data) });
        },
      });
    } catch (error) {
      if (stream.signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        this.#stream = null;
        this.#onState("rejected", error.message);
        return;
      }
    }
    if (stream.signal.aborted) return;
    this.#stream = null;
    if (hasEnded) {
      this.#onState("ended");
      return;
    }
    this.#onState("lost");
    this.#delay = nextRetryDelay(this.#delay);
    this.#retry = setTimeout(() => this.#open(), this.#delay);
  }
}
