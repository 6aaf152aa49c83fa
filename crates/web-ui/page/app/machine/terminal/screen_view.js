// SPDX-License-Identifier: Apache-2.0
// Renders a screen into the document, only its changed lines and at most once per frame.

import { Screen } from "./screen.js";

/** The view follows new output while it is scrolled to within this many pixels of the end. */
const FOLLOW_DISTANCE = 30;
/** An empty line needs a character to have a height. */
const ZERO_WIDTH_SPACE = "\u200b";

export class ScreenView {
  /** @type {HTMLElement} */
  #output;
  /** @type {number | null} */
  #frame = null;
  /** @type {HTMLElement[]} */
  #rows = [];
  /** The number of the first line in the document. */
  #first = 0;

  /**
   * @param {HTMLElement} output
   * @param {string} size such as `80×24`
   */
  constructor(output, size) {
    this.#output = output;
    const [columns, rows] = size.split("×").map(Number);
    this.screen = new Screen(columns, rows);
    output.style.setProperty("--rows", String(rows));
    output.style.setProperty("--columns", String(columns));
    output.replaceChildren();
    this.#schedule();
  }

  clear() {
    this.screen.reset();
    this.#output.replaceChildren();
    this.#rows = [];
    this.#first = 0;
    this.#schedule();
  }

  /** @param {string} text */
  write(text) {
    this.screen.write(text);
    this.#schedule();
  }

  close() {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
  }

  #schedule() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#render();
    });
  }

  #render() {
    const { screen } = this;
    const output = this.#output;
    const follows = output.scrollTop + output.clientHeight > output.scrollHeight - FOLLOW_DISTANCE;
    while (this.#first < screen.discarded) {
      this.#rows.shift()?.remove();
      this.#first += 1;
    }
    const cursorLine = screen.discarded + screen.base + screen.y;
    screen.changed.add(cursorLine);
    for (const number of [...screen.changed].sort((a, b) => a - b)) {
      const line = screen.lines[number - screen.discarded];
      if (!line) continue;
      while (this.#first + this.#rows.length <= number) {
        const row = document.createElement("div");
        this.#rows.push(row);
        output.append(row);
      }
      const cursor = number === cursorLine && screen.showsCursor ? screen.x : null;
      renderLine(this.#rows[number - this.#first], screen.runs(line), cursor);
    }
    screen.changed.clear();
    if (follows) output.scrollTop = output.scrollHeight;
  }
}

/**
 * Renders the runs of a line, with the cursor at a column if it is in this line.
 * @param {HTMLElement} row
 * @param {[string, string][]} runs
 * @param {number | null} cursor
 */
function renderLine(row, runs, cursor) {
  /** @type {Node[]} */
  const parts = [];
  const add = (text, style) => {
    if (!text) return;
    if (!style) {
      parts.push(document.createTextNode(text));
      return;
    }
    const span = document.createElement("span");
    span.className = style;
    span.textContent = text;
    parts.push(span);
  };
  let column = 0;
  for (const [text, style] of runs) {
    const characters = [...text];
    const offset = cursor === null ? -1 : cursor - column;
    if (offset >= 0 && offset < characters.length) {
      add(characters.slice(0, offset).join(""), style);
      add(characters[offset], `${style} cursor`);
      add(characters.slice(offset + 1).join(""), style);
    } else add(text, style);
    column += characters.length;
  }
  if (cursor !== null && cursor >= column) {
    add(" ".repeat(cursor - column), "");
    add(" ", "cursor");
  }
  if (!parts.length) parts.push(document.createTextNode(ZERO_WIDTH_SPACE));
  row.replaceChildren(...parts);
}
