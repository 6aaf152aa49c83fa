// SPDX-License-Identifier: Apache-2.0
// A terminal for a machine's serial console.

import { html, useEffect, useRef, useState } from "../../../vendor/preact-htm.js";
import { ConsoleConnection } from "./console_connection.js";
import { isLeaveKey, keySequence } from "./keys.js";
import { ScreenView } from "./screen_view.js";

const SIZES = ["80×24", "80×25", "100×31", "132×43"];
const SIZE_KEY = "ferrite-terminal-size";
/** The class and the label of each connection state. */
const CONNECTION_STATES = {
  connecting: ["", "connecting…"],
  live: ["good", "live"],
  lost: ["bad", "connection lost, reconnecting"],
  ended: ["", "ended"],
  rejected: ["bad", "not available"],
};

function storedSize() {
  const stored = localStorage.getItem(SIZE_KEY);
  return stored && SIZES.includes(stored) ? stored : SIZES[0];
}

/** @param {{ node: string, onEnded: Function }} props */
export function Terminal({ node, onEnded }) {
  const [state, setState] = useState(
    /** @type {import("./console_connection.js").ConsoleState} */ ("connecting"),
  );
  const [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const [size, setSize] = useState(storedSize);
  const [output, keys, sizeSelect] = [useRef(), useRef(), useRef()];
  const connection = useRef(/** @type {ConsoleConnection | null} */ (null));
  const view = useRef(/** @type {ScreenView | null} */ (null));

  useEffect(() => {
    const screenView = new ScreenView(output.current, size);
    view.current = screenView;
    const opened = new ConsoleConnection(node, {
      onOutput: ({ isStart, text = "" }) => (isStart ? screenView.clear() : screenView.write(text)),
      onState: (next, message) => {
        setProblem(message ?? null);
        setState(next);
        if (next === "ended") onEnded();
      },
      onInputError: setProblem,
    });
    connection.current = opened;
    return () => {
      opened.close();
      screenView.close();
    };
  }, [node, size]);

  const onKeyDown = (event) => {
    if (isLeaveKey(event)) {
      event.preventDefault();
      sizeSelect.current.focus();
      return;
    }
    const text = keySequence(event, {
      applicationKeys: view.current?.screen.applicationKeys,
      hasSelection: !hasNoSelection(),
    });
    if (text === null) return;
    event.preventDefault();
    connection.current?.type(text);
  };
  const onInput = ({ currentTarget: input, isComposing }) => {
    if (isComposing || !input.value) return;
    connection.current?.type(input.value.replace(/\r?\n/g, "\r"));
    input.value = "";
  };
  const onClick = () => {
    if (hasNoSelection()) keys.current.focus({ preventScroll: true });
  };
  const onSize = (event) => {
    localStorage.setItem(SIZE_KEY, event.currentTarget.value);
    setSize(event.currentTarget.value);
  };

  const [tone, label] = CONNECTION_STATES[state];
  return html`<div class="terminal" data-console-state=${state} onClick=${onClick}>
    <pre class="terminal-output" ref=${output} tabindex="0" role="log" aria-label="Console output"></pre>
    <textarea class="terminal-keys" ref=${keys} aria-label="Console input; Control and ] leaves it" autocapitalize="off"
      autocomplete="off" autocorrect="off" spellcheck="false" rows="1" onKeyDown=${onKeyDown} onInput=${onInput}
      onCompositionEnd=${onInput}></textarea>
    <div class="terminal-bar"><span class="dot ${tone}"></span><span role="status" class=${tone === "bad" ? "bad-text" : "quiet"}>
        ${problem ?? label}</span>
      <span class="grow faint">Click to type; <kbd>Ctrl</kbd> <kbd>]</kbd> leaves the console.</span>
      <label class="quiet">Size <select ref=${sizeSelect} value=${size} onChange=${onSize}>
        ${SIZES.map((option) => html`<option key=${option} value=${option}>${option}</option>`)}</select></label></div></div>`;
}

const hasNoSelection = () => getSelection()?.isCollapsed ?? true;
