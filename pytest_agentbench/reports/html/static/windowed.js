const MARGIN = 500;
export const MOST_PRINTED = 300;

/**
 * A long table of which only the rows in sight exist. Its rows have heights that are reckoned before they are drawn.
 *
 * `render(at, height)` gives a row's element, on paper with null for its height. `reckon(width)` gives the top of each row and the
 * end of the last, in pixels, for a table of that width; `covered()` the pixels of the window's top that sticky heads
 * cover. Gives `{ redraw(), reveal(at), inSight(), close() }`.
 */
export function windowRows(body, render, { reckon, covered, columns }) {
  let tops = new Float64Array(1);
  let width = null;
  let [first, last] = [0, 0];
  let printing = false;

  function length() {
    return tops.length - 1;
  }

  function draw(force = false) {
    if (!body.isConnected || printing) return;
    const now = body.closest("table").offsetWidth;
    if (now === 0) return;
    const anew = force || now !== width;
    if (anew) [tops, width] = [reckon(now), now];
    const top = -body.getBoundingClientRect().top;
    const from = Math.max(0, Math.min(rowAt(top - MARGIN), length()));
    const until = Math.min(length(), rowAt(top + innerHeight + MARGIN) + 1);
    if (!anew && from === first && until === last) return;
    [first, last] = [from, until];
    const place = focusedPlace(body);
    const rows = [];
    for (let at = from; at < until; at += 1) rows.push(render(at, tops[at + 1] - tops[at]));
    body.replaceChildren(spacer(tops[from], columns()), ...rows, spacer(tops[length()] - tops[until], columns()));
    if (place !== null) body.querySelector(place)?.focus({ preventScroll: true });
  }

  /** The last row that begins at or above a place. */
  function rowAt(y) {
    let [low, high] = [0, length()];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  const listeners = {
    scroll: () => draw(),
    resize: () => draw(),
    beforeprint: () => {
      printing = true;
      body.replaceChildren(...Array.from({ length: Math.min(length(), MOST_PRINTED) }, (_, at) => render(at, null)));
    },
    afterprint: () => {
      printing = false;
      draw(true);
    },
  };
  for (const [event, listener] of Object.entries(listeners)) addEventListener(event, listener, { passive: true });

  return {
    /** The rows, or what they show, are others now. */
    redraw: () => draw(true),
    length,
    /** Brings a row into sight and gives its element. */
    reveal(at) {
      const top = body.getBoundingClientRect().top;
      const [start, end] = [top + tops[at], top + tops[at + 1]];
      if (start < covered()) scrollBy(0, start - covered());
      else if (end > innerHeight) scrollBy(0, Math.min(end - innerHeight + GAP, start - covered()));
      draw();
      return body.querySelector(`tr[data-at="${at}"]`);
    },
    /** The place of the first row whose top is in sight. */
    inSight() {
      const y = covered() - body.getBoundingClientRect().top;
      const at = Math.max(0, rowAt(y));
      return Math.min(length() - 1, y > tops[at] ? at + 1 : at);
    },
    close() {
      for (const [event, listener] of Object.entries(listeners)) removeEventListener(event, listener);
    },
  };
}

const GAP = 12;

/** A selector of what has the focus in the table, null if nothing has. */
function focusedPlace(body) {
  const at = document.activeElement?.closest?.("tr[data-at]");
  if (at == null || !body.contains(at)) return null;
  const column = document.activeElement.closest("[data-col]")?.dataset.col;
  return `tr[data-at="${at.dataset.at}"] ${column === undefined ? "" : `[data-col="${column}"] `}a`;
}

function spacer(height, columns) {
  const row = document.createElement("tr");
  row.className = "spacer";
  row.hidden = height === 0;
  row.setAttribute("aria-hidden", "true");
  const cell = document.createElement("td");
  cell.colSpan = columns;
  cell.style.height = `${height}px`;
  row.append(cell);
  return row;
}
