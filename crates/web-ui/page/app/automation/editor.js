// SPDX-License-Identifier: Apache-2.0
// Edits a flavour, template, runbook or rule as JSON. The server's error is shown beside it, and the
// field that the error names is selected.

import { html, useRef, useState } from "../../vendor/preact-htm.js";
import { Dialog } from "../dialog.js";
import { ErrorNotice } from "../fetching.js";
import { parseObject } from "../json_input.js";
import { showMessage } from "../toasts.js";
import { editableFieldsOf } from "./resource_kinds.js";

/** Fields of conditions, actions and steps that an error can name. */
const NESTED_FIELDS = ["op", "args", "interface", "step", "order"];

/**
 * `item` is null for a new one.
 * @param {{ kind: any, item: any, onClose: () => void, onSaved: Function }} props
 */
export function Editor({ kind, item, onClose, onSaved }) {
  const before = item ? editableFieldsOf(kind, item) : kind.example;
  const [text, setText] = useState(() => JSON.stringify(before, null, 2));
  const [name, setName] = useState("");
  const [error, setError] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const area = useRef();
  const { value, problem } = parseObject(text);
  const message = problem ?? error;
  const needsName = kind.needsName && !item;
  const save = async () => {
    setBusy(true);
    try {
      if (item) await kind.change(item, before, value);
      else await kind.create(value, name.trim());
      showMessage(item ? "Saved." : `Created ${kind.singular}.`);
      onSaved();
      onClose();
    } catch (caught) {
      const reason = caught instanceof Error ? caught.message : String(caught);
      setError(reason);
      setBusy(false);
      selectField(area.current, text, reason, [...kind.fields, ...NESTED_FIELDS]);
    }
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button primary" data-confirm disabled=${busy || !!problem || (needsName && !name.trim())}
      onClick=${save}>${item ? "Save" : `Create ${kind.singular}`}</button>`;
  return html`<${Dialog} title=${item ? kind.nameOf(item) : `New ${kind.singular}`} class="wide" onClose=${onClose} footer=${footer}>
    ${
      needsName &&
      html`<label class="field"><span>Name</span><input type="text" value=${name}
      onInput=${(event) => setName(event.currentTarget.value)} /></label>`
    }
    <label class="field"><span>As JSON: ${kind.fields.join(", ")}</span><textarea ref=${area} class="json" spellcheck=${false}
      rows=${Math.min(24, Math.max(8, text.split("\n").length + 1))} aria-invalid=${!!message} value=${text}
      onInput=${(event) => {
        setText(event.currentTarget.value);
        setError(null);
      }}></textarea></label>
    ${message && html`<${ErrorNotice} message=${message} />`}<//>`;
}

/**
 * Selects the first of `names` that occurs in both the message and the text.
 * @param {HTMLTextAreaElement | null} area
 * @param {string} text
 * @param {string} message
 * @param {string[]} names
 */
function selectField(area, text, message, names) {
  const named = names.find(
    (name) => new RegExp(`\\b${name}\\b`).test(message) && text.includes(`"${name}"`),
  );
  if (!named || !area) return;
  const start = text.indexOf(`"${named}"`);
  area.focus();
  area.setSelectionRange(start, start + named.length + 2);
}
