"use strict";
(() => {
  const PAGE = 200;
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.querySelector(".results table");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  // What a mark says is shown at once; browsers take a second for a title.
  document.addEventListener("pointerover", (event) => {
    const mark = event.target;
    const title = mark.querySelector && mark.namespaceURI.endsWith("svg") ? mark.querySelector(":scope > title") : null;
    if (title) {
      mark.setAttribute("data-told", title.textContent);
      title.remove();
    }
    const told = mark.getAttribute && mark.getAttribute("data-told");
    tip.hidden = !told;
    tip.textContent = told || "";
  });
  document.addEventListener("pointermove", (event) => {
    if (tip.hidden) return;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const top = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
    Object.assign(tip.style, { left: Math.max(4, left) + "px", top: top + "px" });
  });

  if (!table) return;
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const input = document.querySelector(".controls input");
  const count = document.querySelector(".count");
  const more = document.querySelector(".more");
  const index = new Map(data.columns.map((column, place) => [column.name, place]));
  const texts = data.rows.map((row) => row.map((cell) => (cell === null ? "" : String(cell))).join("\u0000").toLowerCase());
  let rows = data.rows.map((_, place) => place);
  let shown = PAGE;

  const number = (cell) => {
    if (typeof cell === "number") return cell;
    if (cell === null || cell === "" || cell === "nan") return NaN;
    if (cell === "inf" || cell === "-inf") return cell === "inf" ? Infinity : -Infinity;
    return Number(cell);
  };
  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0 || (size >= 1e-4 && size < 1e5)) return String(Number(value.toPrecision(5)));
    return value.toExponential(4).replace(/\.?0+e/, "e").replace("e+", "e");
  };
  const written = (cell) => (cell === null ? "–" : typeof cell === "number" ? digits(cell) : cell);

  function draw() {
    const made = document.createDocumentFragment();
    for (const place of rows.slice(0, shown)) {
      const line = document.createElement("tr");
      data.rows[place].forEach((cell, column) => {
        const td = line.insertCell();
        td.textContent = written(cell);
        if (data.columns[column].right) td.className = "right";
        if (column === data.status) td.className = data.colours[data.names.indexOf(cell)] || "";
      });
      made.append(line);
    }
    body.replaceChildren(made);
    more.hidden = rows.length <= shown;
    const all = data.rows.length.toLocaleString("en");
    count.textContent = rows.length === data.rows.length ? `${all} trials` : `${rows.length.toLocaleString("en")} of ${all} trials`;
  }

  const holds = {
    "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
  };

  // `lr>0.01 failed`: conditions on columns, and words that stand anywhere.
  function filter() {
    const tests = input.value.trim().split(/\s+/).filter(Boolean).map((word) => {
      const found = word.match(/^(.+?)(<=|>=|!=|=|<|>)(.+)$/);
      const column = found ? index.get(found[1]) : undefined;
      if (column === undefined) return (place) => texts[place].includes(word.toLowerCase());
      const wanted = Number(found[3]);
      return (place) => {
        const cell = data.rows[place][column];
        if (!Number.isNaN(wanted) && data.columns[column].right) return holds[found[2]](number(cell), wanted);
        return cell !== null && holds[found[2]](String(cell), found[3]);
      };
    });
    rows = order.filter((place) => tests.every((test) => test(place)));
    shown = PAGE;
    draw();
  }

  let order = rows;
  function sort(column) {
    const isUp = heads[column].getAttribute("aria-sort") !== "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const sign = isUp ? 1 : -1;
    const words = new Intl.Collator("en", { numeric: true });
    const compare = (a, b) => {
      const one = data.rows[a][column], other = data.rows[b][column];
      if (!data.columns[column].right) return sign * words.compare(one === null ? "" : String(one), other === null ? "" : String(other));
      const x = number(one), y = number(other);
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);  // what is unknown comes last
      return x === y ? 0 : sign * (x < y ? -1 : 1);
    };
    order = [...order].sort(compare);
    filter();
  }

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
  input.addEventListener("input", filter);
  more.addEventListener("click", () => { shown += 5 * PAGE; draw(); });
  addEventListener("beforeprint", () => { shown = Math.max(shown, Math.min(rows.length, 1000)); draw(); });
  draw();
})();
