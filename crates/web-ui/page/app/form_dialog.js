// SPDX-License-Identifier: Apache-2.0
// A dialog with a form: sends it on Enter or by its button, and shows the server's error.

import { html, useRef, useState } from "../vendor/preact-htm.js";
import { Dialog } from "./dialog.js";
import { ErrorNotice } from "./fetching.js";

let lastId = 0;

/**
 * `onSubmit` sends the form; the dialog closes if it succeeds. `problem` prevents sending and is shown.
 * @param {object} props
 * @param {string} props.title
 * @param {string} props.submit the label of the button
 * @param {boolean} [props.isDangerous]
 * @param {boolean} [props.isReady]
 * @param {string | null} [props.problem]
 * @param {string} [props.class]
 * @param {() => Promise<unknown>} props.onSubmit
 * @param {() => void} props.onClose
 * @param {any} [props.children]
 */
export function FormDialog({
  title,
  submit,
  isDangerous = false,
  isReady = true,
  problem = null,
  class: kind = "",
  onSubmit,
  onClose,
  children = null,
}) {
  const id = useRef(/** @type {string | null} */ (null));
  id.current ??= `form-${++lastId}`;
  const [error, setError] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    if (busy || problem || !isReady) return;
    setBusy(true);
    try {
      await onSubmit();
      onClose();
    } catch (caught) {
      setError(caught instanceof Error ? caught.message : String(caught));
      setBusy(false);
    }
  };
  const message = problem ?? error;
  const footer = html`<span class="grow"></span><button class="button" type="button" onClick=${onClose}>Cancel</button>
    <button class="button ${isDangerous ? "danger" : "primary"}" type="submit" form=${id.current} data-confirm
      disabled=${busy || !isReady || !!problem}>${submit}</button>`;
  return html`<${Dialog} title=${title} class=${kind} onClose=${onClose} footer=${footer}>
    <form id=${id.current} class="dialog-form" onSubmit=${send} onInput=${() => setError(null)}>${children}</form>
    ${message && html`<${ErrorNotice} message=${message} />`}<//>`;
}

/**
 * A labelled text field that is bound to a field of `form`.
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.value
 * @param {(value: string) => void} props.onChange
 * @param {string} [props.type]
 * @param {string} [props.hint]
 * @param {string} [props.placeholder]
 * @param {string} [props.autocomplete]
 * @param {boolean} [props.required]
 * @param {number} [props.rows] makes it a text area
 */
export function TextField({
  label,
  value,
  onChange,
  type = "text",
  hint = "",
  placeholder = "",
  autocomplete = "off",
  required = false,
  rows = 0,
}) {
  const onInput = (event) => onChange(event.currentTarget.value);
  const field = rows
    ? html`<textarea rows=${rows} spellcheck=${false} placeholder=${placeholder} value=${value} onInput=${onInput}></textarea>`
    : html`<input type=${type} autocomplete=${autocomplete} spellcheck=${false} placeholder=${placeholder} required=${required}
        value=${value} onInput=${onInput} />`;
  return html`<label class="field"><span>${label}</span>${field}${hint && html`<small>${hint}</small>`}</label>`;
}

/**
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.value
 * @param {[string, string][]} props.options value and label
 * @param {(value: string) => void} props.onChange
 * @param {string} [props.hint]
 */
export function SelectField({ label, value, options, onChange, hint = "" }) {
  return html`<label class="field"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([id, text]) => html`<option key=${id} value=${id} selected=${id === value}>${text}</option>`)}</select>
    ${hint && html`<small>${hint}</small>`}</label>`;
}

/**
 * A button of a row; `reason` is why it is disabled.
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.name the accessible name, with the name of the row
 * @param {string | null} [props.reason]
 * @param {boolean} [props.isDangerous]
 * @param {() => void} props.onClick
 */
export function RowButton({ label, name, reason = null, isDangerous = false, onClick }) {
  return html`<button class="button plain ${isDangerous ? "danger-text" : ""}" aria-label=${name} title=${reason ?? undefined}
    disabled=${!!reason} onClick=${onClick}>${label}</button>`;
}
