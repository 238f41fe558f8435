/**
 * Where somebody was in each entry of the history: going back to a long list, or loading it again, leads to the row
 * that was left.
 *
 * `leave()` before another view is shown; `arrive()` once it is, true where the entry had been left before.
 */
export function placesIn(main) {
  history.scrollRestoration = "manual";
  const places = new Map();
  let entry = null;
  let last = Date.now();
  addEventListener("beforeunload", () => {
    if (entry !== null) history.replaceState({ entry, place: here() }, "");
  });

  return {
    leave() {
      if (entry !== null) places.set(entry, here());
    },
    arrive() {
      const known = history.state?.entry;
      if (known !== undefined && known === entry) return true;
      entry = known ?? (last += 1);
      if (known === undefined) history.replaceState({ entry }, "");
      const place = places.get(entry) ?? history.state.place;
      if (place !== undefined) queueMicrotask(() => goTo(place));
      return place !== undefined;
    },
  };

  function here() {
    const at = document.activeElement;
    return { y: scrollY, href: main.contains(at) ? at.getAttribute("href") : null };
  }

  /** Views fill their tables in a microtask of their own, and draw the rows in sight when they are scrolled. */
  function goTo({ y, href }) {
    scrollTo(0, y);
    requestAnimationFrame(() => {
      const left = href === null ? null : main.querySelector(`a[href="${CSS.escape(href)}"]`);
      if (left !== null) left.focus({ preventScroll: true });
      else if (document.activeElement === document.body) main.focus({ preventScroll: true });
    });
  }
}
