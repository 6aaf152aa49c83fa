// SPDX-License-Identifier: Apache-2.0
// The connection of a terminal: what the console says as it comes, and what is typed, in order.

import { ApiError, ferritePath, post, refusalOf } from "../../api.js";
import { longer } from "../../live.js";

/** So much is typed with one request. */
const MOST_TYPED = 1000;
/** The server says that it lives every 15 seconds. */
const SILENCE_MS = 45_000;

export class ConsoleLine {
  #path; #hear; #tell;
  #stream = null;
  #retry = null;
  #pause = 0;
  #typed = "";
  #isTyping = false;
  #isOver = false;

  /**
   * Follows a node's console. `hear` gets `{begins}` when what was said so far comes, and `{text}`; `tell`
   * gets how the connection is: `connecting`, `live`, `lost`, `over` (switched off), and with `refused` and
   * `untyped` a sentence.
   */
  constructor(node, hear, tell) {
    this.#path = ferritePath(node, "/console");
    this.#hear = hear;
    this.#tell = tell;
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#open();
  }

  end() {
    this.#isOver = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#close();
  }

  /** Types. One request at a time, so that nothing comes before what was typed earlier. */
  async type(text) {
    this.#typed += text;
    if (this.#isTyping) return;
    this.#isTyping = true;
    while (this.#typed && !this.#isOver) {
      const now = [...this.#typed].slice(0, MOST_TYPED).join("");
      this.#typed = this.#typed.slice(now.length);
      try {
        await post(this.#path, { text: now });
      } catch (error) {
        // What was typed for a moment that is over must not arrive later.
        this.#typed = "";
        this.#tell("untyped", error.message);
      }
    }
    this.#isTyping = false;
  }

  #onVisibility = () => {
    if (document.hidden) this.#close();
    else if (!this.#stream) this.#open();
  };

  #close() {
    clearTimeout(this.#retry);
    this.#stream?.abort();
    this.#stream = null;
  }

  async #open() {
    this.#close();
    if (document.hidden) return;
    const mine = this.#stream = new AbortController();
    this.#tell("connecting");
    let ended = false;
    try {
      const answer = await fetch(this.#path, { headers: { Accept: "text/event-stream", "X-Ferrite-Page": "1" }, signal: mine.signal });
      if (!answer.ok) throw refusalOf(answer, await answer.text());
      this.#tell("live");
      this.#pause = 0;
      ended = await this.#read(answer.body);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        this.#stream = null;
        this.#tell("refused", error.message);
        return;
      }
    }
    if (mine.signal.aborted) return;
    this.#stream = null;
    if (ended) { this.#tell("over"); return; }
    this.#tell("lost");
    this.#pause = longer(this.#pause);
    this.#retry = setTimeout(() => this.#open(), this.#pause);
  }

  /** Reads events to the end, or until nothing comes any more; gives whether it was said to be the end. */
  async #read(body) {
    let rest = "", isOver = false, begins = true;
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const silence = setTimeout(() => reader.cancel(), SILENCE_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(silence));
      if (done) return isOver;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? [];
        if (kind === "output") {
          // What was said so far comes again; where nothing of it is kept, what was seen stays.
          if (begins) this.#hear({ begins });
          begins = false;
          this.#hear({ text: JSON.parse(data) });
        }
        if (kind === "end") isOver = true;
      }
    }
  }
}
