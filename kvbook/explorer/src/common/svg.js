/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

/** Write attributes; null takes one away. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
}

/** A logarithmic scale: a function from [low, high] to [from, to]. */
export function logScale([low, high], [from, to]) {
  const slope = (to - from) / Math.log(high / low);
  return (value) => Math.round((from + slope * Math.log(value / low)) * 10) / 10;
}
