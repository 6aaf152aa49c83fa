// SPDX-License-Identifier: Apache-2.0
// A terminal for a machine's serial console: one can look, and one can type.

import { html, useEffect, useRef, useState } from "../../../vendor/preact-htm.js";
import { leaves, said } from "./keys.js";
import { ConsoleLine } from "./line.js";
import { Screen } from "./screen.js";

const SIZES = ["80×24", "80×25", "100×31", "132×43"];
const SIZE_KEY = "ferrite-terminal-size";
const STATES = {
  connecting: ["", "connecting…"], live: ["good", "live"], lost: ["bad", "connection lost; trying again"],
  over: ["", "ended"], refused: ["bad", "not to be had"],
};

export function Terminal({ node, onOver }) {
  const [state, setState] = useState("connecting");
  const [trouble, setTrouble] = useState(null);
  const [size, setSize] = useState(() => (SIZES.includes(localStorage.getItem(SIZE_KEY)) ? localStorage.getItem(SIZE_KEY) : SIZES[0]));
  const [paper, keys, after] = [useRef(), useRef(), useRef()];
  const line = useRef(null);
  const screen = useRef(null);

  useEffect(() => {
    const view = new View(paper.current, size);
    screen.current = view.screen;
    const connection = line.current = new ConsoleLine(node, ({ begins, text }) => (begins ? view.clear() : view.write(text)), (now, words) => {
      setTrouble(words ?? null);
      if (now === "untyped") return;
      setState(now);
      if (now === "over") onOver();
    });
    return () => { connection.end(); view.end(); };
  }, [node, size]);

  const onKeyDown = (event) => {
    if (leaves(event)) { event.preventDefault(); after.current.focus(); return; }
    const hasSelection = !getSelection().isCollapsed;
    const text = said(event, { applicationKeys: screen.current?.applicationKeys, hasSelection });
    if (text === null) return;
    event.preventDefault();
    line.current.type(text);
  };
  const onInput = ({ currentTarget: it, isComposing }) => {
    if (isComposing || !it.value) return;
    line.current.type(it.value.replace(/\r?\n/g, "\r"));
    it.value = "";
  };
  const onClick = () => { if (getSelection().isCollapsed) keys.current.focus({ preventScroll: true }); };
  const choose = (event) => { localStorage.setItem(SIZE_KEY, event.currentTarget.value); setSize(event.currentTarget.value); };

  const [tone, words] = STATES[state];
  return html`<div class="terminal" data-console-state=${state} onClick=${onClick}>
    <pre class="terminal-paper" ref=${paper} tabindex="0" role="log" aria-label="What the console says"></pre>
    <textarea class="terminal-keys" ref=${keys} aria-label="Type at the console; Control and ] leaves" autocapitalize="off"
      autocomplete="off" autocorrect="off" spellcheck="false" rows="1" onKeyDown=${onKeyDown} onInput=${onInput}
      onCompositionEnd=${onInput}></textarea>
    <div class="terminal-bar"><span class="dot ${tone}"></span><span role="status" class=${tone === "bad" ? "bad-text" : "quiet"}>
        ${trouble ?? words}</span>
      <span class="grow faint">Click into it to type; <kbd>Ctrl</kbd> <kbd>]</kbd> leaves.</span>
      <label class="quiet">Size <select ref=${after} value=${size} onChange=${choose}>
        ${SIZES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label></div></div>`;
}

/** Draws a screen, and only what changed of it, once per frame. */
class View {
  #paper;
  #frame = null;
  #rows = [];
  #first = 0;

  constructor(paper, size) {
    this.#paper = paper;
    const [columns, rows] = size.split("×").map(Number);
    this.screen = new Screen(columns, rows);
    paper.style.setProperty("--rows", rows);
    paper.style.setProperty("--columns", columns);
    paper.replaceChildren();
    this.#soon();
  }

  clear() {
    this.screen.reset();
    this.#paper.replaceChildren();
    [this.#rows, this.#first] = [[], 0];
    this.#soon();
  }

  write(text) {
    this.screen.write(text);
    this.#soon();
  }

  end() { cancelAnimationFrame(this.#frame); }

  #soon() { this.#frame ??= requestAnimationFrame(() => { this.#frame = null; this.#draw(); }); }

  #draw() {
    const { screen } = this;
    const follows = this.#paper.scrollTop + this.#paper.clientHeight > this.#paper.scrollHeight - 30;
    while (this.#first < screen.gone) { this.#rows.shift()?.remove(); this.#first += 1; }
    const cursor = screen.gone + screen.base + screen.y;
    screen.changed.add(cursor);
    for (const number of [...screen.changed].sort((one, other) => one - other)) {
      const line = screen.lines[number - screen.gone];
      if (!line) continue;
      while (this.#first + this.#rows.length <= number) {
        const row = document.createElement("div");
        this.#rows.push(row);
        this.#paper.append(row);
      }
      fill(this.#rows[number - this.#first], screen.runs(line), number === cursor && screen.showsCursor ? screen.x : null);
    }
    screen.changed.clear();
    if (follows) this.#paper.scrollTop = this.#paper.scrollHeight;
  }
}

/** Writes a line's runs, with the cursor at a column if it is there. */
function fill(row, runs, cursor) {
  const parts = [];
  let at = 0;
  const add = (text, style) => {
    if (!text) return;
    const part = style ? document.createElement("span") : document.createTextNode(text);
    if (style) { part.className = style; part.textContent = text; }
    parts.push(part);
  };
  for (const [text, style] of runs) {
    const letters = [...text];
    const here = cursor === null ? -1 : cursor - at;
    if (here >= 0 && here < letters.length) {
      add(letters.slice(0, here).join(""), style);
      add(letters[here], `${style} cursor`);
      add(letters.slice(here + 1).join(""), style);
    } else add(text, style);
    at += letters.length;
  }
  if (cursor !== null && cursor >= at) { add(" ".repeat(cursor - at), ""); add(" ", "cursor"); }
  // An empty line has a height, too.
  row.replaceChildren(...(parts.length ? parts : [document.createTextNode("\u200b")]));
}
