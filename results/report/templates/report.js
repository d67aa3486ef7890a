"use strict";
// Tables sort by a click on a header; a second click turns the order round.
function number(text) {
  if (text === "∞" || text === "void") return Infinity;
  const found = text.replace(/,/g, "").match(/^[-+]?[\d.]+/);
  return found ? parseFloat(found[0]) : NaN;
}
function compare(a, b) {
  const x = number(a), y = number(b);
  if (!Number.isNaN(x) && !Number.isNaN(y)) return x === y ? 0 : x - y;
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
  return a.localeCompare(b, undefined, { numeric: true });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const turn = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", turn === 1 ? "ascending" : "descending");
      const text = (row) => row.cells[column].textContent.trim();
      const rows = [...table.tBodies[0].rows].sort((a, b) => turn * compare(text(a), text(b)));
      table.tBodies[0].append(...rows);
    });
  });
}
// A link to something folded away opens it, and so does printing.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
