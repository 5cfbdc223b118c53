// Small helpers for building the page.

type Child = Node | string | null | undefined | false;

/** An element with attributes (functions become event listeners) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.replace(/^on/, ""), value as EventListener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, ...children);
  return element;
}

export function append(parent: Element, ...children: Child[]): void {
  for (const child of children) if (child) parent.append(child);
}

export function select(
  label: string,
  options: [value: string, text: string][],
  value: string,
  onChange: (value: string) => void,
): HTMLLabelElement {
  const control = h("select", {
    onchange: (event: Event) => onChange((event.target as HTMLSelectElement).value),
  });
  for (const [key, text] of options) {
    control.append(h("option", { value: key, selected: key === value }, text));
  }
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export const percent = (value: number, digits = 2): string => `${(100 * value).toFixed(digits)} %`;

export const commas = (value: number): string => value.toLocaleString("en-GB");

/** "one image", "12 images" */
export const plural = (count: number, noun: string): string =>
  `${commas(count)} ${noun}${count === 1 ? "" : "s"}`;
