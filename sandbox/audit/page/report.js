"use strict";
// Everything shown comes from the data block and is set as text, never as markup.
(() => {
  const PAGE = 100;
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(data.columns.map((name, index) => [name, index]));
  const words = data.words;
  const word = (row, name) => words[row[at[name]]];
  const body = document.getElementById("rows");
  const status = document.getElementById("found");
  const search = document.getElementById("search");
  const selects = [...document.querySelectorAll("select[data-column]")];
  const earlier = document.getElementById("earlier");
  const later = document.getElementById("later");
  let found = data.rows;
  let texts = null;
  let page = 0;

  const attributes = (row) => row[at.attrs].map((number) => words[number]);
  const text = (row) => data.columns.map((name) => (name === "time" ? row[at.time] : name === "attrs" ? attributes(row).join(" ") : word(row, name))).join(" ").toLowerCase();

  function matching() {
    const wanted = selects.filter((select) => select.value !== "").map((select) => [at[select.dataset.column], Number(select.value)]);
    const asked = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    if (asked.length && texts === null) texts = data.rows.map(text);
    return data.rows.filter((row, index) =>
      wanted.every(([column, value]) => row[column] === value) && asked.every((part) => texts[index].includes(part)));
  }

  function cell(line, value, kind) {
    const made = document.createElement("td");
    made.textContent = value;
    if (kind) made.className = kind;
    line.append(made);
    return made;
  }

  function show() {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(page, pages - 1);
    const lines = found.slice(page * PAGE, (page + 1) * PAGE).map((row) => {
      const line = document.createElement("tr");
      cell(line, row[at.time], "m");
      for (const name of ["name", "phase", "tenant", "tool", "host"]) cell(line, word(row, name));
      const decision = word(row, "decision") || word(row, "status");
      cell(line, decision, ["allow", "deny", "error"].includes(decision) ? decision : "");
      const more = document.createElement("details");
      const label = document.createElement("summary");
      label.textContent = word(row, "reason") || "attributes";
      const full = document.createElement("pre");
      full.textContent = attributes(row).join("\n") + "\ndriver " + word(row, "driver") + "\ntrace " + word(row, "trace") + " span " + word(row, "span") + "\nstream " + word(row, "stream") + " record " + word(row, "seq");
      more.append(label, full);
      cell(line, "").append(more);
      return line;
    });
    body.replaceChildren(...lines);
    status.textContent = found.length + " of " + data.rows.length + " records; page " + (page + 1) + " of " + pages;
    earlier.disabled = page === 0;
    later.disabled = page >= pages - 1;
  }

  function again() {
    found = matching();
    page = 0;
    show();
  }

  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(again, 120); });
  for (const select of selects) select.addEventListener("change", again);
  earlier.addEventListener("click", () => { page -= 1; show(); });
  later.addEventListener("click", () => { page += 1; show(); });
  show();
  document.documentElement.dataset.ready = "yes";
})();
