// Small helpers over the DOM. Text only ever enters through textContent.

/** An element with attributes (on… is an event listener) and children (strings become text nodes). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Write only what differs, so that a live region speaks only when its text changes. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let count = 0;
const scope = Math.random().toString(36).slice(2, 8); // each explorer's file has its own `count`

/** An id that no other explorer on the page has. */
export function uid() {
  return `kvbook-${scope}-${count++}`;
}
