// SPDX-License-Identifier: Apache-2.0
// A terminal's screen: lines of letters with styles, changed by what a serial console prints. It knows
// what firmware, boot loaders and Linux on a serial line use of VT100 and its heirs, and answers nothing:
// whoever only looks must not type.

/** Lines that are kept above the screen. */
const MOST_LINES = 2000;
const BLANK = " ";
/** What `ESC ( 0` makes of letters: lines and corners. */
const DRAWN = { j: "┘", k: "┐", l: "┌", m: "└", n: "┼", q: "─", t: "├", u: "┤", v: "┴", w: "┬", x: "│", a: "▒", o: "⎺", s: "⎽", "`": "◆" };

export class Screen {
  /** Whether arrow keys are to say `ESC O` instead of `ESC [`. */
  applicationKeys = false;

  constructor(columns = 80, rows = 24) {
    this.columns = columns;
    this.rows = rows;
    this.reset();
  }

  /** Forgets everything. */
  reset() {
    /** The lines, the oldest first; the last `rows` of them are the screen. */
    this.lines = [];
    /** How many lines were forgotten at the top. */
    this.gone = 0;
    /** The numbers of lines that changed since somebody last looked, counted from the first ever. */
    this.changed = new Set();
    this.#begin();
  }

  /** An empty screen below what was printed, with everything as it is at first. */
  #begin() {
    this.applicationKeys = false;
    this.showsCursor = true;
    this.#state = "text";
    this.#style = plain();
    this.#draws = false;
    this.#saved = null;
    this.#other = null;
    this.#wraps = false;
    [this.x, this.y] = [0, 0];
    [this.#top, this.#bottom] = [0, this.rows - 1];
    for (let row = 0; row < this.rows; row++) this.#push();
    for (let row = 0; row < this.rows; row++) this.#mark(row);
  }

  #state; #style; #draws; #saved; #other; #wraps; #top; #bottom;
  #sequence = "";

  /** Where the first line of the screen is among the lines. */
  get base() { return this.lines.length - this.rows; }

  /** Prints. */
  write(text) {
    for (const letter of text) this.#take(letter);
    this.#mark(this.y);
  }

  /** The line as runs of the same style: `[[text, style], …]`. */
  runs(line) {
    const runs = [];
    for (let at = 0; at < line.letters.length; at++) {
      const last = runs.at(-1);
      if (last && last[1] === line.styles[at]) last[0] += line.letters[at];
      else runs.push([line.letters[at], line.styles[at]]);
    }
    return runs;
  }

  #take(letter) {
    const code = letter.codePointAt(0);
    switch (this.#state) {
      case "text": if (code < 32 || code === 127) this.#control(code); else this.#print(letter); return;
      case "escape": this.#escape(letter, code); return;
      case "charset": this.#draws = letter === "0"; this.#state = "text"; return;
      case "one": this.#state = "text"; return;
      case "words":
        if (code === 7) this.#state = "text";
        else if (code === 27) this.#state = "words-escape";
        return;
      case "words-escape": this.#state = letter === "\\" ? "text" : "words"; return;
      default:
        if (code === 27) { this.#state = "escape"; return; }
        if (code < 32) { this.#control(code); return; }
        if (code < 64) { if (this.#sequence.length < 64) this.#sequence += letter; return; }
        this.#state = "text";
        this.#act(letter);
    }
  }

  #control(code) {
    switch (code) {
      case 8: this.#go(this.x - 1, this.y); return;
      case 9: this.#go(Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8), this.y); return;
      case 10: case 11: case 12: this.#down(); return;
      case 13: this.#go(0, this.y); return;
      case 27: this.#state = "escape"; return;
      default:
    }
  }

  #escape(letter, code) {
    this.#state = "text";
    switch (letter) {
      case "[": this.#state = "control"; this.#sequence = ""; return;
      case "]": case "P": case "X": case "^": case "_": this.#state = "words"; return;
      case "(": this.#state = "charset"; return;
      case "7": this.#save(); return;
      case "8": this.#restore(); return;
      case "D": this.#down(); return;
      case "E": this.#go(0, this.y); this.#down(); return;
      case "M": if (this.y === this.#top) this.#scroll(this.#top, -1); else this.#go(this.x, this.y - 1); return;
      case "c": this.#begin(); return;
      default: if (code >= 32 && code < 48) this.#state = "one";
    }
  }

  #act(letter) {
    const isPrivate = this.#sequence.startsWith("?");
    const numbers = this.#sequence.replace(/^[?>=]/, "").split(";").map((text) => (text === "" ? undefined : Number.parseInt(text, 10)));
    const [first = 0, second = 0] = numbers.map((number) => (Number.isNaN(number) ? 0 : number));
    const times = Math.min(Math.max(1, first), 1000);
    switch (letter) {
      case "A": this.#go(this.x, Math.max(this.y - times, this.y >= this.#top ? this.#top : 0)); return;
      case "B": case "e": this.#go(this.x, Math.min(this.y + times, this.y <= this.#bottom ? this.#bottom : this.rows - 1)); return;
      case "C": case "a": this.#go(this.x + times, this.y); return;
      case "D": this.#go(this.x - times, this.y); return;
      case "E": this.#go(0, this.y + times); return;
      case "F": this.#go(0, this.y - times); return;
      case "G": case "`": this.#go(times - 1, this.y); return;
      case "d": this.#go(this.x, times - 1); return;
      case "H": case "f": this.#go(Math.max(1, second) - 1, times - 1); return;
      case "J": this.#wipe(first); return;
      case "K": this.#erase(this.y, first === 0 ? this.x : 0, first === 1 ? this.x + 1 : this.columns); return;
      case "L": if (this.#isInside()) this.#scroll(this.y, -times); return;
      case "M": if (this.#isInside()) this.#scroll(this.y, times); return;
      case "S": this.#scroll(this.#top, times); return;
      case "T": this.#scroll(this.#top, -times); return;
      case "@": this.#shift(times); return;
      case "P": this.#shift(-times); return;
      case "X": this.#erase(this.y, this.x, this.x + times); return;
      case "m": if (!this.#sequence.startsWith(">")) restyle(this.#style, numbers); return;
      case "r": this.#limit(times, second); return;
      case "s": if (!isPrivate) this.#save(); return;
      case "u": if (!isPrivate) this.#restore(); return;
      case "h": case "l": if (isPrivate) for (const mode of numbers) this.#switch(mode, letter === "h"); return;
      default:
    }
  }

  #switch(mode, on) {
    if (mode === 1) this.applicationKeys = on;
    if (mode === 25) this.showsCursor = on;
    if (mode !== 47 && mode !== 1047 && mode !== 1049) return;
    // Full-screen programs have a screen of their own, and leave the other as it was.
    if (on && !this.#other) {
      this.#other = { lines: this.lines.slice(this.base), x: this.x, y: this.y };
      this.lines.splice(this.base, this.rows, ...Array.from({ length: this.rows }, newLine));
    } else if (!on && this.#other) {
      this.lines.splice(this.base, this.rows, ...this.#other.lines);
      [this.x, this.y] = [this.#other.x, this.#other.y];
      this.#other = null;
    }
    for (let row = 0; row < this.rows; row++) this.#mark(row);
  }

  #print(letter) {
    if (this.#wraps) { this.x = 0; this.#down(); }
    const line = this.lines[this.base + this.y];
    while (line.letters.length < this.x) { line.letters.push(BLANK); line.styles.push(""); }
    line.letters[this.x] = this.#draws ? DRAWN[letter] ?? letter : letter;
    line.styles[this.x] = classes(this.#style);
    this.#mark(this.y);
    // The cursor stays at the last column until another letter comes.
    this.#wraps = this.x === this.columns - 1;
    if (!this.#wraps) this.x += 1;
  }

  #go(x, y) {
    this.#mark(this.y);
    this.#wraps = false;
    this.x = Math.min(this.columns - 1, Math.max(0, x));
    this.y = Math.min(this.rows - 1, Math.max(0, y));
    this.#mark(this.y);
  }

  #down() {
    if (this.y === this.#bottom) { this.#wraps = false; this.#scroll(this.#top, 1); } else this.#go(this.x, this.y + 1);
  }

  /** Moves the lines from `from` to the bottom up by so many, or down if it is negative. */
  #scroll(from, by) {
    const count = Math.min(Math.abs(by), this.#bottom - from + 1);
    const isAll = from === 0 && this.#bottom === this.rows - 1 && !this.#other;
    for (let turn = 0; turn < count; turn++) {
      if (by > 0 && isAll) { this.#push(); continue; }
      this.lines.splice(this.base + (by > 0 ? from : this.#bottom), 1);
      // One line is missing while the base is looked up, so the place is one further down.
      this.lines.splice(this.base + 1 + (by > 0 ? this.#bottom : from), 0, newLine());
    }
    for (let row = from; row <= this.#bottom; row++) this.#mark(row);
  }

  #push() {
    this.lines.push(newLine());
    this.#mark(this.rows - 1);
    if (this.lines.length > MOST_LINES + this.rows) { this.lines.shift(); this.gone += 1; }
  }

  #wipe(how) {
    if (how === 3) return;
    const [from, to] = how === 0 ? [this.y + 1, this.rows] : how === 1 ? [0, this.y] : [0, this.rows];
    if (how === 0) this.#erase(this.y, this.x, this.columns);
    if (how === 1) this.#erase(this.y, 0, this.x + 1);
    for (let row = from; row < to; row++) this.#erase(row, 0, this.columns);
  }

  #erase(row, from, to) {
    const line = this.lines[this.base + row];
    const style = this.#style.back === null ? "" : classes({ ...plain(), back: this.#style.back });
    if (to >= this.columns && style === "") { line.letters.length = Math.min(line.letters.length, from); line.styles.length = line.letters.length; }
    for (let at = from; at < Math.min(to, style === "" ? line.letters.length : this.columns); at++) { line.letters[at] = BLANK; line.styles[at] = style; }
    for (let at = 0; at < line.letters.length; at++) if (line.letters[at] === undefined) { line.letters[at] = BLANK; line.styles[at] = ""; }
    this.#mark(row);
  }

  /** Makes room for so many letters at the cursor, or takes them out if it is negative. */
  #shift(by) {
    const line = this.lines[this.base + this.y];
    if (this.x < line.letters.length) {
      for (const [list, blank] of [[line.letters, BLANK], [line.styles, ""]]) {
        if (by > 0) list.splice(this.x, 0, ...Array.from({ length: Math.min(by, this.columns) }, () => blank));
        else list.splice(this.x, -by);
        list.length = Math.min(list.length, this.columns);
      }
    }
    this.#mark(this.y);
  }

  #limit(top, bottom) {
    const last = Math.min(bottom || this.rows, this.rows);
    [this.#top, this.#bottom] = top < last ? [top - 1, last - 1] : [0, this.rows - 1];
    this.#go(0, 0);
  }

  #isInside() { return this.y >= this.#top && this.y <= this.#bottom; }

  #save() { this.#saved = { x: this.x, y: this.y, style: { ...this.#style } }; }

  #restore() {
    const { x, y, style } = this.#saved ?? { x: 0, y: 0, style: plain() };
    this.#style = { ...style };
    this.#go(x, y);
  }

  #mark(row) { this.changed.add(this.gone + this.base + row); }
}

const newLine = () => ({ letters: [], styles: [] });
const plain = () => ({ front: null, back: null, bold: false, faint: false, under: false, inverse: false });

/** The classes that show a style. */
function classes({ front, back, bold, faint, under, inverse }) {
  const names = [];
  const [ink, paper] = inverse ? [back ?? "back", front ?? "front"] : [front, back];
  if (ink !== null) names.push(`ink-${ink}`);
  if (paper !== null) names.push(`paper-${paper}`);
  if (bold) names.push("bold");
  if (faint) names.push("faint-ink");
  if (under) names.push("under");
  return names.join(" ");
}

function restyle(style, numbers) {
  for (let at = 0; at < numbers.length; at++) {
    const number = numbers[at] ?? 0;
    if (number === 0) Object.assign(style, plain());
    else if (number === 1) style.bold = true;
    else if (number === 2) style.faint = true;
    else if (number === 4) style.under = true;
    else if (number === 7) style.inverse = true;
    else if (number === 22) style.bold = style.faint = false;
    else if (number === 24) style.under = false;
    else if (number === 27) style.inverse = false;
    // Grey on black is what a terminal is, whatever colours the page gives it.
    else if (number >= 30 && number <= 37) style.front = number === 37 ? null : number - 30;
    else if (number === 39) style.front = null;
    else if (number >= 40 && number <= 47) style.back = number === 40 ? null : number - 40;
    else if (number === 49) style.back = null;
    else if (number >= 90 && number <= 97) style.front = number - 82;
    else if (number >= 100 && number <= 107) style.back = number - 92;
    else if (number === 38 || number === 48) {
      const [colour, used] = further(numbers.slice(at + 1));
      style[number === 38 ? "front" : "back"] = colour;
      at += used;
    }
  }
}

/** The nearest of sixteen colours for `5;n` or `2;r;g;b`, and how many numbers that takes. */
function further([kind, ...rest]) {
  if (kind === 2) return [nearest(rest.slice(0, 3)), 4];
  if (kind !== 5) return [null, 1];
  const number = Math.min(255, Math.max(0, rest[0] ?? 0));
  if (number < 16) return [number, 2];
  if (number >= 232) { const grey = 8 + (number - 232) * 10; return [nearest([grey, grey, grey]), 2]; }
  const cube = number - 16;
  return [nearest([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((part) => part * 51)), 2];
}

function nearest(parts) {
  const [red = 0, green = 0, blue = 0] = parts;
  const most = Math.max(red, green, blue);
  if (most < 48) return 0;
  const bits = (red > most / 2 ? 1 : 0) | (green > most / 2 ? 2 : 0) | (blue > most / 2 ? 4 : 0);
  return bits + (most > 170 ? 8 : 0);
}
