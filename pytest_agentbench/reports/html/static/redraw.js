/** Draws an element's content anew by `draw()`: folds that somebody opened stay so, the focus and the place in it stay. */
export function redrawElement(main, draw) {
  const opened = [...main.querySelectorAll("details")].map((fold) => [pathOf(fold, main), fold.open]);
  const focused = main !== document.activeElement && main.contains(document.activeElement) ? pathOf(document.activeElement, main) : null;
  const at = scrollY;
  draw();
  for (const [path, open] of opened) main.querySelector(path)?.toggleAttribute("open", open);
  scrollTo(0, at);
  if (focused !== null) main.querySelector(focused)?.focus({ preventScroll: true });
}

/** A selector of what stands in an element's place: from the next section or figure above it, as others may come and go. */
function pathOf(element, main) {
  const steps = [];
  let at = element;
  for (; at !== main && !at.id && !at.hasAttribute("aria-labelledby"); at = at.parentElement) {
    steps.unshift(`${at.localName}:nth-child(${[...at.parentElement.children].indexOf(at) + 1})`);
  }
  const root = at === main || at.id ? `#${CSS.escape(at.id)}` : `[aria-labelledby="${CSS.escape(at.getAttribute("aria-labelledby"))}"]`;
  return [root, ...steps].join(" > ");
}
