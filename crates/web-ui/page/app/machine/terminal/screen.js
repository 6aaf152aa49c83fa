// SPDX-License-Identifier: Apache-2.0
// The screen of a terminal emulator: lines of characters with styles. It implements the part of VT100
// and its successors that firmware, boot loaders and Linux use on a serial line. It never replies to
// queries, because a reply would be input to the console.

/** Lines kept above the screen. */
const SCROLLBACK_LINES = 2000;
const BLANK = " ";
/**
 * The line drawing characters that `ESC ( 0` selects.
 * @type {Record<string, string>}
 */
const LINE_DRAWING = {
  j: "┘",
  k: "┐",
  l: "┌",
  m: "└",
  n: "┼",
  q: "─",
  t: "├",
  u: "┤",
  v: "┴",
  w: "┬",
  x: "│",
  a: "▒",
  o: "⎺",
  s: "⎽",
  "`": "◆",
};

/** @typedef {{ characters: string[], styles: string[] }} ScreenLine */
/** @typedef {{ foreground: number | null, background: number | null, bold: boolean, faint: boolean, underline: boolean, inverse: boolean }} TextStyle */
/** @typedef {"text" | "escape" | "charset" | "ignore one" | "string" | "string escape" | "control sequence"} ParserState */

export class Screen {
  /** Whether arrow keys send `ESC O` instead of `ESC [`. */
  applicationKeys = false;
  showsCursor = true;
  /**
   * The lines, the oldest first; the last `rows` of them are the screen.
   * @type {ScreenLine[]}
   */
  lines = [];
  /** The number of lines dropped from the top of the scrollback. */
  discarded = 0;
  /**
   * The lines changed since the last render, numbered from the first line ever.
   * @type {Set<number>}
   */
  changed = new Set();
  /** The cursor. */
  x = 0;
  y = 0;

  /** @type {ParserState} */
  #state = "text";
  #style = defaultStyle();
  #isLineDrawing = false;
  /** @type {{ x: number, y: number, style: TextStyle } | null} */
  #saved = null;
  /**
   * The saved main screen, while a program uses the alternate screen.
   * @type {{ lines: ScreenLine[], x: number, y: number } | null}
   */
  #mainScreen = null;
  #wrapPending = false;
  /** The scroll region. */
  #top = 0;
  #bottom = 0;
  #sequence = "";

  constructor(columns = 80, rows = 24) {
    this.columns = columns;
    this.rows = rows;
    this.reset();
  }

  /** Clears the screen and the scrollback. */
  reset() {
    this.lines = [];
    this.discarded = 0;
    this.changed = new Set();
    this.#initialise();
  }

  /** Appends an empty screen below the output, with the initial modes. */
  #initialise() {
    this.applicationKeys = false;
    this.showsCursor = true;
    this.#state = "text";
    this.#style = defaultStyle();
    this.#isLineDrawing = false;
    this.#saved = null;
    this.#mainScreen = null;
    this.#wrapPending = false;
    [this.x, this.y] = [0, 0];
    [this.#top, this.#bottom] = [0, this.rows - 1];
    for (let row = 0; row < this.rows; row++) this.#appendLine();
    for (let row = 0; row < this.rows; row++) this.#markChanged(row);
  }

  /** The index of the first line of the screen in `lines`. */
  get base() {
    return this.lines.length - this.rows;
  }

  /**
   * Processes output.
   * @param {string} text
   */
  write(text) {
    for (const character of text) this.#process(character);
    this.#markChanged(this.y);
  }

  /**
   * The runs of equal style in a line: text and class names.
   * @param {ScreenLine} line
   * @returns {[string, string][]}
   */
  runs(line) {
    /** @type {[string, string][]} */
    const runs = [];
    for (let index = 0; index < line.characters.length; index++) {
      const last = runs.at(-1);
      if (last && last[1] === line.styles[index]) last[0] += line.characters[index];
      else runs.push([line.characters[index], line.styles[index]]);
    }
    return runs;
  }

  /** @param {string} character */
  #process(character) {
    const code = character.codePointAt(0) ?? 0;
    switch (this.#state) {
      case "text":
        if (code < 32 || code === 127) this.#control(code);
        else this.#print(character);
        return;
      case "escape":
        this.#escape(character, code);
        return;
      case "charset":
        this.#isLineDrawing = character === "0";
        this.#state = "text";
        return;
      case "ignore one":
        this.#state = "text";
        return;
      case "string":
        if (code === 7) this.#state = "text";
        else if (code === 27) this.#state = "string escape";
        return;
      case "string escape":
        this.#state = character === "\\" ? "text" : "string";
        return;
      default:
        if (code === 27) {
          this.#state = "escape";
          return;
        }
        if (code < 32) {
          this.#control(code);
          return;
        }
        if (code < 64) {
          if (this.#sequence.length < 64) this.#sequence += character;
          return;
        }
        this.#state = "text";
        this.#controlSequence(character);
    }
  }

  /** @param {number} code */
  #control(code) {
    switch (code) {
      case 8:
        this.#moveTo(this.x - 1, this.y);
        return;
      case 9:
        this.#moveTo(Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8), this.y);
        return;
      case 10:
      case 11:
      case 12:
        this.#lineFeed();
        return;
      case 13:
        this.#moveTo(0, this.y);
        return;
      case 27:
        this.#state = "escape";
        return;
      default:
    }
  }

  /**
   * @param {string} character
   * @param {number} code
   */
  #escape(character, code) {
    this.#state = "text";
    switch (character) {
      case "[":
        this.#state = "control sequence";
        this.#sequence = "";
        return;
      case "]":
      case "P":
      case "X":
      case "^":
      case "_":
        this.#state = "string";
        return;
      case "(":
        this.#state = "charset";
        return;
      case "7":
        this.#save();
        return;
      case "8":
        this.#restore();
        return;
      case "D":
        this.#lineFeed();
        return;
      case "E":
        this.#moveTo(0, this.y);
        this.#lineFeed();
        return;
      case "M":
        if (this.y === this.#top) this.#scroll(this.#top, -1);
        else this.#moveTo(this.x, this.y - 1);
        return;
      case "c":
        this.#initialise();
        return;
      default:
        if (code >= 32 && code < 48) this.#state = "ignore one";
    }
  }

  /** @param {string} character the final character of the sequence */
  #controlSequence(character) {
    const isPrivate = this.#sequence.startsWith("?");
    const numbers = this.#sequence
      .replace(/^[?>=]/, "")
      .split(";")
      .map((text) => (text === "" ? undefined : Number.parseInt(text, 10)));
    const [first = 0, second = 0] = numbers.map((number) => number || 0);
    const times = Math.min(Math.max(1, first), 1000);
    switch (character) {
      case "A":
        this.#moveTo(this.x, Math.max(this.y - times, this.y >= this.#top ? this.#top : 0));
        return;
      case "B":
      case "e":
        this.#moveTo(
          this.x,
          Math.min(this.y + times, this.y <= this.#bottom ? this.#bottom : this.rows - 1),
        );
        return;
      case "C":
      case "a":
        this.#moveTo(this.x + times, this.y);
        return;
      case "D":
        this.#moveTo(this.x - times, this.y);
        return;
      case "E":
        this.#moveTo(0, this.y + times);
        return;
      case "F":
        this.#moveTo(0, this.y - times);
        return;
      case "G":
      case "`":
        this.#moveTo(times - 1, this.y);
        return;
      case "d":
        this.#moveTo(this.x, times - 1);
        return;
      case "H":
      case "f":
        this.#moveTo(Math.max(1, second) - 1, times - 1);
        return;
      case "J":
        this.#eraseDisplay(first);
        return;
      case "K":
        this.#eraseCells(this.y, first === 0 ? this.x : 0, first === 1 ? this.x + 1 : this.columns);
        return;
      case "L":
        if (this.#isInScrollRegion()) this.#scroll(this.y, -times);
        return;
      case "M":
        if (this.#isInScrollRegion()) this.#scroll(this.y, times);
        return;
      case "S":
        this.#scroll(this.#top, times);
        return;
      case "T":
        this.#scroll(this.#top, -times);
        return;
      case "@":
        this.#insertOrDelete(times);
        return;
      case "P":
        this.#insertOrDelete(-times);
        return;
      case "X":
        this.#eraseCells(this.y, this.x, this.x + times);
        return;
      case "m":
        if (!this.#sequence.startsWith(">")) applyStyle(this.#style, numbers);
        return;
      case "r":
        this.#setScrollRegion(times, second);
        return;
      case "s":
        if (!isPrivate) this.#save();
        return;
      case "u":
        if (!isPrivate) this.#restore();
        return;
      case "h":
      case "l":
        if (isPrivate) for (const mode of numbers) this.#setMode(mode, character === "h");
        return;
      default:
    }
  }

  /**
   * @param {number | undefined} mode
   * @param {boolean} on
   */
  #setMode(mode, on) {
    if (mode === 1) this.applicationKeys = on;
    if (mode === 25) this.showsCursor = on;
    if (mode !== 47 && mode !== 1047 && mode !== 1049) return;
    // Full-screen programs use the alternate screen, which leaves the main one unchanged.
    if (on && !this.#mainScreen) {
      this.#mainScreen = { lines: this.lines.slice(this.base), x: this.x, y: this.y };
      this.lines.splice(this.base, this.rows, ...Array.from({ length: this.rows }, newLine));
    } else if (!on && this.#mainScreen) {
      this.lines.splice(this.base, this.rows, ...this.#mainScreen.lines);
      [this.x, this.y] = [this.#mainScreen.x, this.#mainScreen.y];
      this.#mainScreen = null;
    }
    for (let row = 0; row < this.rows; row++) this.#markChanged(row);
  }

  /** @param {string} character */
  #print(character) {
    if (this.#wrapPending) {
      this.x = 0;
      this.#lineFeed();
    }
    const line = this.lines[this.base + this.y];
    while (line.characters.length < this.x) {
      line.characters.push(BLANK);
      line.styles.push("");
    }
    line.characters[this.x] = this.#isLineDrawing
      ? (LINE_DRAWING[character] ?? character)
      : character;
    line.styles[this.x] = classNames(this.#style);
    this.#markChanged(this.y);
    // At the last column the cursor wraps only when the next character arrives.
    this.#wrapPending = this.x === this.columns - 1;
    if (!this.#wrapPending) this.x += 1;
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #moveTo(x, y) {
    this.#markChanged(this.y);
    this.#wrapPending = false;
    this.x = Math.min(this.columns - 1, Math.max(0, x));
    this.y = Math.min(this.rows - 1, Math.max(0, y));
    this.#markChanged(this.y);
  }

  #lineFeed() {
    if (this.y === this.#bottom) {
      this.#wrapPending = false;
      this.#scroll(this.#top, 1);
    } else this.#moveTo(this.x, this.y + 1);
  }

  /**
   * Scrolls the lines from `from` to the bottom of the region up, or down if `by` is negative.
   * @param {number} from
   * @param {number} by
   */
  #scroll(from, by) {
    const count = Math.min(Math.abs(by), this.#bottom - from + 1);
    const isAll = from === 0 && this.#bottom === this.rows - 1 && !this.#mainScreen;
    for (let step = 0; step < count; step++) {
      if (by > 0 && isAll) {
        this.#appendLine();
        continue;
      }
      this.lines.splice(this.base + (by > 0 ? from : this.#bottom), 1);
      // With one line missing, `base` is one too low.
      this.lines.splice(this.base + 1 + (by > 0 ? this.#bottom : from), 0, newLine());
    }
    for (let row = from; row <= this.#bottom; row++) this.#markChanged(row);
  }

  #appendLine() {
    this.lines.push(newLine());
    this.#markChanged(this.rows - 1);
    if (this.lines.length > SCROLLBACK_LINES + this.rows) {
      this.lines.shift();
      this.discarded += 1;
    }
  }

  /** @param {number} mode 0: below the cursor, 1: above, 2: all, 3: the scrollback, which is kept */
  #eraseDisplay(mode) {
    if (mode === 3) return;
    const [from, to] =
      mode === 0 ? [this.y + 1, this.rows] : mode === 1 ? [0, this.y] : [0, this.rows];
    if (mode === 0) this.#eraseCells(this.y, this.x, this.columns);
    if (mode === 1) this.#eraseCells(this.y, 0, this.x + 1);
    for (let row = from; row < to; row++) this.#eraseCells(row, 0, this.columns);
  }

  /**
   * Erases cells of a row with the current background.
   * @param {number} row
   * @param {number} from
   * @param {number} to
   */
  #eraseCells(row, from, to) {
    const line = this.lines[this.base + row];
    const style =
      this.#style.background === null
        ? ""
        : classNames({ ...defaultStyle(), background: this.#style.background });
    if (to >= this.columns && style === "") {
      line.characters.length = Math.min(line.characters.length, from);
      line.styles.length = line.characters.length;
    }
    for (
      let index = from;
      index < Math.min(to, style === "" ? line.characters.length : this.columns);
      index++
    ) {
      line.characters[index] = BLANK;
      line.styles[index] = style;
    }
    for (let index = 0; index < line.characters.length; index++)
      if (line.characters[index] === undefined) {
        line.characters[index] = BLANK;
        line.styles[index] = "";
      }
    this.#markChanged(row);
  }

  /**
   * Inserts blanks at the cursor, or deletes characters if `by` is negative.
   * @param {number} by
   */
  #insertOrDelete(by) {
    const line = this.lines[this.base + this.y];
    if (this.x < line.characters.length) {
      /** @type {[string[], string][]} */
      const lists = [
        [line.characters, BLANK],
        [line.styles, ""],
      ];
      for (const [list, blank] of lists) {
        if (by > 0)
          list.splice(
            this.x,
            0,
            ...Array.from({ length: Math.min(by, this.columns) }, () => blank),
          );
        else list.splice(this.x, -by);
        list.length = Math.min(list.length, this.columns);
      }
    }
    this.#markChanged(this.y);
  }

  /**
   * @param {number} top from 1
   * @param {number} bottom 0 for the last row
   */
  #setScrollRegion(top, bottom) {
    const last = Math.min(bottom || this.rows, this.rows);
    [this.#top, this.#bottom] = top < last ? [top - 1, last - 1] : [0, this.rows - 1];
    this.#moveTo(0, 0);
  }

  #isInScrollRegion() {
    return this.y >= this.#top && this.y <= this.#bottom;
  }

  #save() {
    this.#saved = { x: this.x, y: this.y, style: { ...this.#style } };
  }

  #restore() {
    const { x, y, style } = this.#saved ?? { x: 0, y: 0, style: defaultStyle() };
    this.#style = { ...style };
    this.#moveTo(x, y);
  }

  /** @param {number} row */
  #markChanged(row) {
    this.changed.add(this.discarded + this.base + row);
  }
}

/** @returns {ScreenLine} */
const newLine = () => ({ characters: [], styles: [] });
/** @returns {TextStyle} */
const defaultStyle = () => ({
  foreground: null,
  background: null,
  bold: false,
  faint: false,
  underline: false,
  inverse: false,
});

/**
 * The class names of a style.
 * @param {TextStyle} style
 */
function classNames({ foreground, background, bold, faint, underline, inverse }) {
  const names = [];
  const [front, back] = inverse
    ? [background ?? "inverse", foreground ?? "inverse"]
    : [foreground, background];
  if (front !== null) names.push(`fg-${front}`);
  if (back !== null) names.push(`bg-${back}`);
  if (bold) names.push("bold");
  if (faint) names.push("dim");
  if (underline) names.push("underline");
  return names.join(" ");
}

/**
 * Applies the parameters of a "select graphic rendition" sequence.
 * @param {TextStyle} style
 * @param {(number | undefined)[]} numbers
 */
function applyStyle(style, numbers) {
  for (let index = 0; index < numbers.length; index++) {
    const number = numbers[index] ?? 0;
    if (number === 0) Object.assign(style, defaultStyle());
    else if (number === 1) style.bold = true;
    else if (number === 2) style.faint = true;
    else if (number === 4) style.underline = true;
    else if (number === 7) style.inverse = true;
    else if (number === 22) style.bold = style.faint = false;
    else if (number === 24) style.underline = false;
    else if (number === 27) style.inverse = false;
    // White on black are the default colours, which depend on the theme.
    else if (number >= 30 && number <= 37) style.foreground = number === 37 ? null : number - 30;
    else if (number === 39) style.foreground = null;
    else if (number >= 40 && number <= 47) style.background = number === 40 ? null : number - 40;
    else if (number === 49) style.background = null;
    else if (number >= 90 && number <= 97) style.foreground = number - 82;
    else if (number >= 100 && number <= 107) style.background = number - 92;
    else if (number === 38 || number === 48) {
      const [colour, used] = parseColour(numbers.slice(index + 1));
      style[number === 38 ? "foreground" : "background"] = colour;
      index += used;
    }
  }
}

/**
 * The nearest of the sixteen colours for `5;n` or `2;r;g;b`, and the number of parameters used.
 * @param {(number | undefined)[]} parameters
 * @returns {[number | null, number]}
 */
function parseColour([kind, ...rest]) {
  if (kind === 2) return [nearestColour(rest.slice(0, 3)), 4];
  if (kind !== 5) return [null, 1];
  const number = Math.min(255, Math.max(0, rest[0] ?? 0));
  if (number < 16) return [number, 2];
  if (number >= 232) {
    const grey = 8 + (number - 232) * 10;
    return [nearestColour([grey, grey, grey]), 2];
  }
  const cube = number - 16;
  return [
    nearestColour(
      [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((part) => part * 51),
    ),
    2,
  ];
}

/** @param {(number | undefined)[]} parts red, green and blue, each 0 to 255 */
function nearestColour(parts) {
  const [red = 0, green = 0, blue = 0] = parts;
  const brightest = Math.max(red, green, blue);
  if (brightest < 48) return 0;
  const bits =
    (red > brightest / 2 ? 1 : 0) |
    (green > brightest / 2 ? 2 : 0) |
    (blue > brightest / 2 ? 4 : 0);
  return bits + (brightest > 170 ? 8 : 0);
}
