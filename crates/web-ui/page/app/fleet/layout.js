// SPDX-License-Identifier: Apache-2.0
// Where each group and each cell of the grid stands: arithmetic only, so that ten thousand machines
// cost nothing until they are drawn.
//
// Many small groups, such as racks, stand side by side as blocks of the same width, on shelves; few or
// large ones take the whole width.

const HEADING = 30;
const BELOW = 14;
const BETWEEN = 22;
/** Blocks are about so many times as wide as high, and never narrower than their heading. */
const SHAPE = 2.2;
const NARROWEST = 150;

/** Sizes of cells, in pixels: the smallest is a colour, the largest has a name and a state. */
const SIZES = {
  s: { width: 13, height: 13, gap: 2 },
  m: { width: 62, height: 24, gap: 3 },
  l: { width: 150, height: 46, gap: 5 },
};

/** The size that shows so many machines at a glance. */
export function fittingSize(count) {
  if (count <= 60) return "l";
  return count <= 700 ? "m" : "s";
}

/** Groups with their places, as shelves from top to bottom, and the whole height. */
export function layOut(groups, width, size) {
  const cell = { ...SIZES[size] };
  const pitch = { x: cell.width + cell.gap, y: cell.height + cell.gap };
  const most = Math.max(1, Math.floor((width + cell.gap) / pitch.x));
  const columns = blockColumns(groups, width, most, pitch);
  const across = Math.max(1, Math.floor((width + BETWEEN) / (columns * pitch.x + BETWEEN)));
  if (size !== "s") {
    // Cells that show text share the width that is left over.
    const block = (width + BETWEEN) / across - BETWEEN;
    cell.width = Math.max(cell.width, Math.floor((block + cell.gap) / columns) - cell.gap);
    pitch.x = cell.width + cell.gap;
  }
  const shelves = [];
  let top = 0;
  for (let from = 0; from < groups.length; from += across) {
    const places = groups.slice(from, from + across).map((group, index) => {
      const rowsTop = top + (group.name ? HEADING : 0);
      const lines = Math.ceil(group.rows.length / columns);
      return { ...group, top, rowsTop, lines, left: index * (columns * pitch.x + BETWEEN) };
    });
    const bottom = Math.max(...places.map((place) => place.rowsTop + place.lines * pitch.y)) + BELOW;
    shelves.push({ top, bottom, places });
    top = bottom;
  }
  return { shelves, columns, height: top, cell, pitch, size };
}

/** How many cells stand side by side in each group. */
function blockColumns(groups, width, most, pitch) {
  const largest = Math.max(1, ...groups.map((group) => group.rows.length));
  const ideal = Math.max(Math.ceil(Math.sqrt((largest * SHAPE * pitch.y) / pitch.x)), Math.ceil(NARROWEST / pitch.x));
  const isWorthIt = groups.length > 2 && ideal * pitch.x * 2 + BETWEEN <= width && largest <= 120;
  return isWorthIt ? Math.min(ideal, most) : most;
}

/** The groups that are at least partly between two heights. */
export function visible(layout, from, to) {
  return shelvesWithin(layout, from, to).flatMap((shelf) => shelf.places);
}

function shelvesWithin({ shelves }, from, to) {
  let low = 0, high = shelves.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (shelves[middle].bottom <= from) low = middle + 1; else high = middle;
  }
  let end = low;
  while (end < shelves.length && shelves[end].top < to) end++;
  return shelves.slice(low, end);
}

/** The machine at a point, or null. */
export function machineAt(layout, x, y) {
  const { columns, pitch, cell } = layout;
  for (const place of visible(layout, y, y + 1)) {
    const [column, line] = [Math.floor((x - place.left) / pitch.x), Math.floor((y - place.rowsTop) / pitch.y)];
    if (column < 0 || column >= columns || line < 0) continue;
    if ((x - place.left) % pitch.x > cell.width) return null;
    return place.rows[line * columns + column] ?? null;
  }
  return null;
}

/** Where a machine's cell is: `{x, y, place, index, shelf}`. */
export function placeOf({ shelves, columns, pitch }, uuid) {
  for (const [shelf, { places }] of shelves.entries()) {
    for (const place of places) {
      const index = place.rows.findIndex((row) => row.uuid === uuid);
      if (index < 0) continue;
      return { place, index, shelf, x: place.left + (index % columns) * pitch.x,
        y: place.rowsTop + Math.floor(index / columns) * pitch.y };
    }
  }
  return null;
}

/** The machine above (-1) or below (1), on the next shelf if need be. */
export function vertically(layout, uuid, direction) {
  const at = uuid && placeOf(layout, uuid);
  if (!at) return layout.shelves[0]?.places[0]?.rows[0]?.uuid;
  const { columns, shelves, pitch } = layout;
  const line = Math.floor(at.index / columns) + direction;
  if (line >= 0 && line < at.place.lines) return (at.place.rows[at.index + direction * columns] ?? at.place.rows.at(-1)).uuid;
  const next = shelves[at.shelf + direction];
  if (!next) return uuid;
  const beside = next.places.reduce((best,
    place) => (Math.abs(place.left - at.place.left) < Math.abs(best.left - at.place.left) ? place : best));
  const start = direction > 0 ? 0 : (beside.lines - 1) * columns;
  const column = Math.min(columns - 1, Math.max(0, Math.round((at.x - beside.left) / pitch.x)));
  return (beside.rows[start + column] ?? beside.rows.at(-1)).uuid;
}

/** All machines inside a rectangle. */
export function machinesWithin(layout, left, top, right, bottom) {
  const { columns, pitch } = layout;
  const found = [];
  for (const place of visible(layout, top, bottom)) {
    const firstLine = Math.max(0, Math.floor((top - place.rowsTop) / pitch.y));
    const lastLine = Math.min(place.lines - 1, Math.floor((bottom - place.rowsTop) / pitch.y));
    const firstColumn = Math.max(0, Math.floor((left - place.left) / pitch.x));
    const lastColumn = Math.min(columns - 1, Math.floor((right - place.left) / pitch.x));
    for (let line = firstLine; line <= lastLine; line++) {
      for (let column = firstColumn; column <= lastColumn; column++) {
        const row = place.rows[line * columns + column];
        if (row) found.push(row.uuid);
      }
    }
  }
  return found;
}
