/*
 * Plotly under a policy without inline styles. The rules it would write into the page are in styles/plotly.css; the style
 * attributes it sets go through the element's style object, which the policy allows to the page's own scripts.
 */

/** The library would write its rules into the page: an element of this id and class keeps it from that. */
function keepItsRulesOut(): void {
  const id = "plotly.js-style-global";
  if (document.getElementById(id)) return;
  const mark = document.createElement("meta");
  mark.id = id;
  mark.className = "no-inline-styles";
  document.head.append(mark);
}

let isPatched = false;

/** It sets the attribute on every colour bar, empty; the browser refuses that and says so for each. */
function styleThroughTheObject(): void {
  if (isPatched) return;
  isPatched = true;
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (this: Element, name: string, value: string): void {
    const { style } = this as unknown as { style?: CSSStyleDeclaration };
    if (name === "style" && style) style.cssText = value;
    else set.call(this, name, value);
  };
}

export function keepItsStylesOut(): void {
  keepItsRulesOut();
  styleThroughTheObject();
}
