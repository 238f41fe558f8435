// Control characters, and Unicode's Default_Ignorable_Code_Point without the variation selectors of emoji.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\udb40-\udb43][\udc00-\udfff]/g;
const SVG = "http://www.w3.org/2000/svg";

/** The text with escapes for what would hide it or turn it around; lines and tabs stay. */
export function visible(text) {
  return String(text).replace(HIDDEN, escaped);
}

function escaped(sign) {
  const code = sign.codePointAt(0).toString(16);
  return sign.length === 1 ? `\\u${code.padStart(4, "0")}` : `\\u{${code}}`;
}

/**
 * An element. `props` are attributes; `on` holds listeners by event; null, undefined and false attributes are left out.
 * Children are nodes, texts (made visible), numbers, lists of these, or null. Nothing is ever read as markup.
 */
export function el(tag, props = {}, ...children) {
  return made(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  return made(document.createElementNS(SVG, tag), props, children);
}

/** Puts the children in place of the element's own. */
export function show(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

function made(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : visible(value));
    }
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
}
