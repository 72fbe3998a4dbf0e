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
  const cut = document.querySelector(".cut");
  const index = new Map(data.columns.map((column, place) => [column.name, place]));
  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0 || (size >= 1e-4 && size < 1e5)) return String(Number(value.toPrecision(5)));
    return value.toExponential(4).replace(/\.?0+e/, "e").replace("e+", "e");
  };
  // A cell is null, a text, true or false, a number, or [as it is shown, its number]; a number that has no
  // place in a script's own is a text.
  const plain = (cell) => (Array.isArray(cell) ? cell[1] : cell);
  const written = (cell) => {
    if (cell === null) return "–";
    return typeof cell === "number" ? digits(cell) : String(Array.isArray(cell) ? cell[0] : cell);
  };
  const isNumber = (cell) => typeof cell === "number" || Array.isArray(cell);

  // The number that a text stands for, as in a table; null if it is none. Whole ones have all their digits.
  function number(word) {
    if (typeof word === "number") return word;
    if (/^[-+]?\d+$/.test(word)) return Number.isSafeInteger(Number(word)) ? Number(word) : BigInt(word.replace("+", ""));
    if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(word)) return Number(word);
    if (/^[-+]?inf(inity)?$/i.test(word)) return word.startsWith("-") ? -Infinity : Infinity;
    return /^[-+]?nan$/i.test(word) ? NaN : null;
  }

  // The place of `5` or `2.5` in the order of trials; null if it is none.
  function trial(word) {
    const found = /^(?:(\d+)\.)?(\d+)$/.exec(word);
    return found ? Number(found[1] || 1) * 2 ** 32 + Number(found[2]) : null;
  }

  const texts = data.rows.map((row) => row.map((cell) => (cell === null ? "" : `${written(cell)}\u0000${plain(cell)}`)).join("\u0000").toLowerCase());
  let rows = data.rows.map((_, place) => place);
  let shown = PAGE;

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
    const found = rows.length.toLocaleString("en");
    cut.textContent = rows.length <= shown ? "" : `The first ${shown.toLocaleString("en")} of ${found} trials.`;
    if (rows.length < data.rows.length) cut.textContent += ` ${found} of ${all} trials were chosen: ${input.value}`;
    count.textContent = rows.length === data.rows.length ? `${all} trials` : `${found} of ${all} trials`;
  }

  const orders = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b };
  const same = (a, b) => a == b || (Number.isNaN(a) && Number.isNaN(b));  // also a BigInt and a number

  function equals(cell, wanted, value) {
    if (cell === null) return wanted === "";  // what is unknown equals nothing
    if (typeof cell === "boolean") return String(cell) === wanted.toLowerCase();
    if (!isNumber(cell)) return cell === wanted;
    return value !== null && same(number(plain(cell)), value);
  }

  function matching(wanted) {
    try {
      const pattern = new RegExp(wanted, "u");
      return (cell) => cell !== null && pattern.test(typeof cell === "boolean" ? String(cell) : plain(cell));
    } catch {
      return () => true;  // more is being written
    }
  }

  // A condition on a column, which means what it means in `stoker table --where`.
  function condition(column, sign, wanted) {
    if (sign === "~") return matching(wanted);
    const value = column === data.trial ? trial(wanted) : number(wanted);
    const compare = orders[sign];
    if (compare && wanted === "") return () => true;  // more is being written
    if (column === data.trial) {
      const test = compare || ((a, b) => (a === b) === (sign !== "!="));
      return (cell) => test(trial(cell), value);
    }
    if (!compare) return (cell) => equals(cell, wanted, value) === (sign !== "!=");
    return (cell) => {
      if (isNumber(cell)) return value !== null && compare(number(plain(cell)), value);
      return typeof cell === "string" && value === null && compare(cell, wanted);
    };
  }

  // A name may have signs in it: the first that leaves a column's name before it counts.
  function read(word) {
    for (const sign of word.matchAll(/<=|>=|!=|==|=|<|>|~/g)) {
      const column = index.get(word.slice(0, sign.index));
      const wanted = word.slice(sign.index + sign[0].length).replace(/^(['"])(.*)\1$/s, "$2");
      if (column !== undefined) return [column, condition(column, sign[0], wanted)];
    }
    return null;
  }

  // `lr>0.01 failed`: conditions on columns, and words that stand anywhere.
  function filter() {
    const words = input.value.match(/[^\s'"]*[=<>~](?:'[^']*'|"[^"]*")(?=\s|$)|\S+/g) || [];
    const tests = words.map((word, place) => {
      const found = read(word);
      if (found) return (row) => found[1](data.rows[row][found[0]]);
      if (/^and$/i.test(word) && place && place < words.length - 1) return () => true;
      return (row) => texts[row].includes(word.toLowerCase());
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
    const key = (place) => {
      const cell = data.rows[place][column];
      if (column === data.trial) return trial(cell);
      return isNumber(cell) ? number(plain(cell)) : typeof cell === "boolean" ? Number(cell) : cell;
    };
    const keys = data.rows.map((_, place) => key(place));
    const isUnknown = (found) => found === null || Number.isNaN(found);
    const compare = (a, b) => {
      const one = keys[a], other = keys[b];
      if (isUnknown(one) || isUnknown(other)) return isUnknown(one) - isUnknown(other);  // comes last
      const isText = typeof one === "string";
      if (isText !== (typeof other === "string")) return isText ? sign : -sign;
      if (isText) return sign * words.compare(one, other);
      return one == other ? 0 : sign * (one < other ? -1 : 1);
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
