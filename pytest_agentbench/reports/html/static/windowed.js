const MARGIN = 12;

/**
 * A long table of which only the rows in sight exist.
 *
 * All rows are of one height, which is measured. `render(at)` gives the row's element; `scroller` is what scrolls, null:
 * the page. Gives `{ resize(n), reveal(at), inSight(), close() }`.
 */
export function windowRows(body, render, { scroller = null, columns = 1 } = {}) {
  let length = 0;
  let height = 37;
  let first = 0;
  let last = 0;
  let printing = false;
  const above = spacer(columns);
  const below = spacer(columns);

  function draw(force = false) {
    if (!body.isConnected || printing) return;
    const from = Math.max(0, Math.min(length, Math.floor(offset() / height) - MARGIN));
    const until = Math.min(length, from + Math.ceil(visibleHeight() / height) + 2 * MARGIN);
    if (!force && from === first && until === last) return;
    [first, last] = [from, until];
    const focused = document.activeElement?.closest?.("tr[data-at]")?.dataset.at;
    const rows = [];
    for (let at = from; at < until; at += 1) rows.push(render(at));
    above.firstChild.style.height = `${from * height}px`;
    below.firstChild.style.height = `${(length - until) * height}px`;
    body.replaceChildren(above, ...rows, below);
    if (focused !== undefined) body.querySelector(`tr[data-at="${focused}"] a`)?.focus({ preventScroll: true });
    measure(rows);
  }

  function measure(rows) {
    const found = rows[0]?.getBoundingClientRect().height;
    if (found && Math.abs(found - height) > 0.5) {
      height = found;
      draw(true);
    }
  }

  function offset() {
    if (scroller !== null) return scroller.scrollTop;
    return -body.getBoundingClientRect().top;
  }

  function visibleHeight() {
    return scroller === null ? innerHeight : scroller.clientHeight;
  }

  const onScroll = () => draw();
  const onResize = () => draw(true);
  const onPrint = () => {
    printing = true;
    body.replaceChildren(...Array.from({ length: Math.min(length, MOST_PRINTED) }, (_, at) => render(at)));
  };
  const afterPrint = () => {
    printing = false;
    draw(true);
  };
  (scroller ?? globalThis).addEventListener("scroll", onScroll, { passive: true });
  addEventListener("resize", onResize);
  addEventListener("beforeprint", onPrint);
  addEventListener("afterprint", afterPrint);

  return {
    /** There are `n` rows now, and all may be others. */
    resize(n) {
      length = n;
      draw(true);
    },
    /** Brings a row into sight and gives its element. */
    reveal(at) {
      const top = body.getBoundingClientRect().top + at * height;
      const room = scroller === null ? { top: HEADER, bottom: innerHeight } : scroller.getBoundingClientRect();
      const target = scroller ?? globalThis;
      if (top < room.top + height) target.scrollBy(0, top - room.top - 2 * height);
      else if (top + 2 * height > room.bottom) target.scrollBy(0, top + 2 * height - room.bottom);
      draw();
      return body.querySelector(`tr[data-at="${at}"]`);
    },
    /** The place of the first row that is wholly in sight. */
    inSight() {
      return Math.max(0, Math.ceil((offset() + (scroller === null ? HEADER : 0)) / height));
    },
    close() {
      (scroller ?? globalThis).removeEventListener("scroll", onScroll);
      removeEventListener("resize", onResize);
      removeEventListener("beforeprint", onPrint);
      removeEventListener("afterprint", afterPrint);
    },
  };
}

export const MOST_PRINTED = 1000;
const HEADER = 80;

function spacer(columns) {
  const row = document.createElement("tr");
  row.className = "spacer";
  row.setAttribute("aria-hidden", "true");
  const cell = document.createElement("td");
  cell.colSpan = columns;
  row.append(cell);
  return row;
}
