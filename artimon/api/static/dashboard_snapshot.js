// A snapshot of a dashboard: one HTML file without scripts and without addresses. Charts become pictures; the data is inside as JSON.

import { endsOf } from "./api.js";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/**
 * Returns the text of the file.
 * @param {string} title @param {HTMLElement} board @param {import("./dashboard_panels.js").PanelView[]} views
 */
export function snapshot(title, board, views) {
  const inert = document.implementation.createHTMLDocument(""); // loads no picture, which the policy of the page forbids
  const copy = /** @type {HTMLElement} */ (inert.importNode(board, true));
  const drawn = [...board.querySelectorAll("canvas")];
  [...copy.querySelectorAll("canvas")].forEach((canvas, i) => {
    const picture = inert.createElement("img");
    const box = drawn[i].getBoundingClientRect();
    picture.src = drawn[i].toDataURL("image/png");
    picture.alt = drawn[i].getAttribute("aria-label") ?? drawn[i].closest("figure")?.getAttribute("aria-label") ?? "";
    picture.style.width = `${box.width}px`;
    picture.style.height = `${box.height}px`;
    canvas.replaceWith(picture);
  });
  copy.querySelectorAll(".full, .tooltip, .u-cursor-x, .u-cursor-y, .u-cursor-pt, .u-select").forEach((one) => one.remove());
  copy.querySelectorAll("button").forEach((one) => { const text = document.createElement("span"); text.append(...one.childNodes); one.replaceWith(text); });
  copy.querySelectorAll("a").forEach((one) => { if (!/^https?:/.test(one.getAttribute("href") ?? "")) one.removeAttribute("href"); });
  const theme = document.documentElement.dataset.theme;
  const style = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).filter((text) => !text.includes("url(")).join("\n");
  const panels = views.map(({ title: name, found }) => ({ title: name, ends_ms: found ? endsOf(found.grid) : [], series: found?.rows.map((row) => ({ name: row.short, labels: row.series.labels, values: row.series.values.map(plain) })) ?? [] }));
  const data = JSON.stringify({ title, taken_ms: Date.now(), panels }).replace(/</g, "\\u003c");
  return `<!doctype html>
<html lang="en"${theme ? ` data-theme="${theme}"` : ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Artimon</title>
<style>${style}</style>
</head>
<body>
<main class="boards"><h1>${escaped(title)}</h1><p>Snapshot of ${new Date().toISOString()}</p>
${copy.outerHTML}
</main>
<script type="application/json" id="data">${data}</script>
</body>
</html>
`;
}

/** @param {string} text @returns {string} as the content of an element */
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** @param {import("./format.js").Value} value */
const plain = (value) => (typeof value === "bigint" ? String(value) : value);
