// How do values become part of a page? As text, always: nothing here reads HTML.

/** An element with attributes, class names under `class`, and children: elements, or text. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** JSON from this service, or an error with what it says went wrong. */
export async function ask(address, options = {}) {
  const headers = { accept: "application/json", ...options.headers };
  let reply;
  try {
    reply = await fetch(address, { ...options, headers, credentials: "same-origin" });
  } catch {
    throw new Error("The service does not answer.");
  }
  const value = await reply.json().catch(() => null);
  if (reply.status === 401) throw new Error("The session has ended: load the page again.");
  if (!reply.ok) throw new Error(value?.message ?? `The service replied ${reply.status}.`);
  return value;
}

/** Why a start is not exact: as many reasons as there are, below a line to open. */
export function doubts(box, reasons) {
  box.hidden = !reasons.length;
  box.replaceChildren(element("summary", {}, "Why it is not exact"), element("ul", {}, reasons.map((reason) => element("li", {}, element("bdi", {}, reason)))));
  return box;
}

/** 7,300 seconds as 2.0 h. */
export function duration(seconds) {
  const sign = seconds < 0 ? "−" : "";
  const left = Math.abs(seconds);
  const [length, unit] = [[1, "s", 120], [60, "min", 120], [3600, "h", 48]].find(([one, , most]) => left < one * most) ?? [86400, "d"];
  const amount = left / length;
  const digits = amount < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: amount < 10 ? 1 : 0 };
  return `${sign}${amount.toLocaleString("en", digits)} ${unit}`;
}

/** 11,173,962 as 11.2 M. */
export function count(number) {
  for (const unit of ["", " k", " M", " G", " T"]) {
    if (number < 10 && unit) return number.toFixed(1) + unit;
    if (Math.round(number) < 1000) return Math.round(number) + unit;
    number /= 1000;
  }
  return number.toFixed(1) + " P";
}
