"use strict";
// Charts as inline SVG from the JSON in this file, columns that sort, and a tip that tells values. Nothing is loaded.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const shape = (name, attributes = {}, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const tip = element("div", { id: "tip", hidden: "", role: "status" });
  document.body.append(tip);
  const told = (node, text) => {
    node.setAttribute("data-tip", text);
    node.append(shape("title", {}, text));
  };
  document.addEventListener("pointermove", (event) => {
    const text = event.target.closest?.("[data-tip]")?.getAttribute("data-tip");
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  });

  const scale = (axis, from, to) => {
    const at = axis.log ? Math.log : (value) => value;
    const [low, high] = [at(axis.low), at(axis.high)];
    return (value) => from + ((at(Math.min(Math.max(value, axis.low), axis.high)) - low) / (high - low || 1)) * (to - from);
  };

  const MARKERS = {
    s: "M-4-4H4V4H-4Z", "^": "M0-5L5 4H-5Z", v: "M0 5L5-4H-5Z", "<": "M-5 0L4-5V5Z", ">": "M5 0L-4-5V5Z",
    D: "M0-5L5 0L0 5L-5 0Z", d: "M0-5L3 0L0 5L-3 0Z", P: "M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z",
    X: "M-4-4L0-1L4-4L4-2L1 0L4 4L0 1L-4 4L-1 0Z", "*": "M0-6L2-2L6 0L2 2L0 6L-2 2L-6 0L-2-2Z",
    o: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
  };
  const DASHES = { "-": "", "--": "7 4", ":": "2 3", "-.": "7 3 2 3" };
  const marker = (series, x, y) =>
    shape("path", { d: MARKERS[series.marker] || MARKERS.o, fill: series.colour, transform: `translate(${x} ${y})` });

  // Texts of SVG do not wrap: lines are made here, of what their font takes.
  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    pen.font = getComputedStyle(document.documentElement).getPropertyValue("--chart-font");
    return pen.measureText(text.trimEnd()).width;
  };
  const SEAMS = [/(?<=, )/, /(?<=[ ,])/, /(?:)/u];
  const folded = (text, width, [seam, ...finer] = SEAMS) => {
    if (!seam || widthOf(text) <= width) return [text];
    const lines = [""];
    for (const piece of text.split(seam).flatMap((each) => folded(each, width, finer))) {
      if (widthOf(lines.at(-1) + piece) <= width) lines.push(lines.pop() + piece);
      else lines.push(piece);
    }
    return lines;
  };

  const grid = (svg, axis, place, from, to, upright, width) => {
    let last = -Infinity;
    for (const [value, text] of axis.ticks) {
      const at = place(value);
      svg.append(shape("line", { class: "grid", ...(upright ? { x1: at, x2: at, y1: from, y2: to } : { x1: from, x2: to, y1: at, y2: at }) }));
      if (!upright) svg.append(shape("text", { x: from - 6, y: at + 4, "text-anchor": "end" }, text));
      else {
        const half = widthOf(text) / 2;
        const middle = Math.max(half, Math.min(at, width - half));
        if (middle - half < last + 10) continue;
        svg.append(shape("text", { x: middle, y: to + 16, "text-anchor": "middle" }, text));
        last = middle + half;
      }
    }
  };

  const lines = (svg, chart, hidden, width) => {
    const [left, right, top, height] = [Math.max(...chart.y.ticks.map(([, text]) => text.length)) * 7 + 14, 14, 26, 300];
    const bottom = height - 40;
    const x = scale(chart.x, left, width - right);
    const y = scale(chart.y, bottom, top);
    grid(svg, chart.x, x, top, bottom, true, width);
    grid(svg, chart.y, y, left, width - right, false);
    svg.append(shape("text", { x: 0, y: 14, class: "faint" }, chart.y.title));
    svg.append(shape("text", { x: width - right, y: height - 4, "text-anchor": "end", class: "faint" }, chart.x.title));
    if (chart.level !== null) svg.append(shape("line", { class: "mark", x1: left, x2: width - right, y1: y(chart.level), y2: y(chart.level) }));
    if (chart.at !== null) {
      const at = x(chart.at[0]);
      svg.append(shape("line", { class: "mark", x1: at, x2: at, y1: top, y2: bottom, "stroke-dasharray": "4 3" }));
      const side = at < width / 2;
      svg.append(shape("text", { x: at + (side ? 4 : -4), y: top + 10, "text-anchor": side ? "start" : "end", class: "faint" }, chart.at[1]));
    }
    for (const series of chart.series.filter((each) => !hidden.has(each.name))) {
      const group = shape("g", { class: "ink-of-series" });
      if (series.band.length) {
        const edge = [...series.band.map(([at, , high]) => [at, high]), ...series.band.toReversed().map(([at, low]) => [at, low])];
        group.append(shape("polygon", { points: edge.map(([at, value]) => `${x(at)},${y(value)}`).join(" "), fill: series.colour, opacity: 0.18 }));
      }
      const points = series.points.map(([at, value]) => `${x(at)},${y(value)}`).join(" ");
      if (series.points.length > 1)
        group.append(shape("polyline", { points, fill: "none", stroke: series.colour, "stroke-width": 1.8, "stroke-dasharray": DASHES[series.dash] || "" }));
      for (const [at, value, text] of series.points) {
        const node = marker(series, x(at), y(value));
        told(node, text);
        group.append(node);
      }
      svg.append(group);
    }
    return height;
  };

  const HATCHES = ["", "M0 6L6 0", "M0 0L6 6", "M0 3H6", "M3 0V6", "M0 6L6 0M0 0L6 6", "M0 0H6M0 3H6"];
  const hatches = (svg, chart, number) => {
    const defined = shape("defs");
    chart.parts.forEach(([, colour], place) => {
      const pattern = shape("pattern", { id: `p${number}-${place}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" });
      pattern.append(shape("rect", { width: 6, height: 6, fill: colour }));
      pattern.append(shape("path", { d: HATCHES[place % HATCHES.length], stroke: "#fff", "stroke-width": 0.9, opacity: 0.8 }));
      defined.append(pattern);
    });
    svg.append(defined);
  };

  const bars = (svg, chart, hidden, width, number) => {
    const shown = chart.bars.filter((bar) => !hidden.has(bar.name));
    const [line, thick, gap] = [15, 14, 11];
    const labels = shown.map(({ name, text }) => {
      const whole = text ? `${name}: ${text}` : name;
      return widthOf(whole) <= width - 4 ? [whole] : [name, text].filter(Boolean).flatMap((each) => folded(each, width - 4));
    });
    const height = labels.flat().length * line + shown.length * (thick + gap) + 40;
    const x = scale(chart.x, 2, width - 14);
    hatches(svg, chart, number);
    grid(svg, chart.x, x, 4, height - 36, true, width);
    svg.append(shape("text", { x: width - 14, y: height - 4, "text-anchor": "end", class: "faint" }, chart.x.title));
    let top = 3;
    shown.forEach((bar, place) => {
      for (const label of labels[place]) svg.append(shape("text", { x: 2, y: (top += line) - 4 }, label));
      const group = shape("g", { class: "ink-of-series" });
      for (const [part, start, end, text] of bar.spans) {
        const node = shape("rect", { x: x(start), y: top, width: Math.max(x(end) - x(start), 0.5), height: thick, fill: `url(#p${number}-${part})` });
        told(node, text);
        group.append(node);
      }
      svg.append(group);
      top += thick + gap;
    });
    return height;
  };

  const numbers = (chart) => {
    const rows = (chart.kind === "bars" ? chart.bars.map((bar) => [bar.name, bar.spans]) : chart.series.map((series) => [series.name, series.points]))
      .flatMap(([name, items]) => items.map((item) => [name, item.at(-1)]));
    const body = rows.map((cells) => element("tr", {}, ...cells.map((text) => element("td", {}, text))));
    const head = element("tr", {}, ...["of", "value"].map((text) => element("th", { scope: "col" }, text)));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
    return element("details", {}, element("summary", {}, "The same in numbers"), element("div", { class: "table", tabindex: "0", role: "region", "aria-label": `numbers of ${chart.title}` }, table));
  };

  const swatch = (chart, number, place) => {
    const picture = shape("svg", { width: 22, height: 14, "aria-hidden": "true", class: "ink-of-series" });
    if (chart.kind === "bars") picture.append(shape("rect", { width: 22, height: 14, fill: `url(#p${number}-${place})` }));
    else {
      const series = chart.series[place];
      if (series.points.length > 1) picture.append(shape("line", { x1: 0, x2: 22, y1: 7, y2: 7, stroke: series.colour, "stroke-width": 1.8, "stroke-dasharray": DASHES[series.dash] || "" }));
      picture.append(marker(series, 11, 7));
    }
    return picture;
  };

  const hiddenBy = [];
  const draw = (chart, number) => {
    const hidden = (hiddenBy[number] ??= new Set());
    const holder = element("div");
    const paint = () => {
      const width = Math.max(holder.clientWidth, 280);
      const svg = shape("svg", { class: "chart", role: "img", "aria-label": `${chart.title}. ${chart.note}` });
      const height = (chart.kind === "bars" ? bars : lines)(svg, chart, hidden, width, number);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      holder.replaceChildren(svg);
    };
    const key = element("div", { class: "key" });
    const toggles = (chart.kind === "bars" ? chart.bars : chart.series).map((each) => each.name);
    const button = (name, ...content) => {
      const made = element("button", { type: "button", "aria-pressed": String(!hidden.has(name)), title: "show or hide" }, ...content, name);
      made.addEventListener("click", () => {
        hidden.has(name) ? hidden.delete(name) : hidden.add(name);
        made.setAttribute("aria-pressed", String(!hidden.has(name)));
        paint();
      });
      return made;
    };
    const figure = element("figure", {}, element("figcaption", {}, chart.title, element("small", {}, chart.note)), holder);
    if (chart.kind === "bars") {
      const parts = element("div", { class: "key" });
      chart.parts.forEach(([name], place) => parts.append(element("span", {}, swatch(chart, number, place), ` ${name}`)));
      figure.append(parts);
      if (chart.bars.length > 1) key.append("Show: ", ...toggles.map((name) => button(name)));
    } else key.append(...toggles.map((name, place) => button(name, swatch(chart, number, place))));
    figure.append(key, numbers(chart));
    document.getElementById("charts").append(figure);
    paint();
    new ResizeObserver(() => holder.clientWidth !== Number(holder.firstChild?.viewBox.baseVal.width) && paint()).observe(holder);
  };
  const UNITS = { ps: 1e-12, ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
    KiB: 1024, MiB: 1048576, GiB: 1073741824, bps: 1, kbps: 1e3, Mbps: 1e6, Gbps: 1e9, Tbps: 1e12, k: 1e3, M: 1e6 };
  const sortKey = (text) => {
    const found = text.replace(/,/g, "").match(/^\W*?(-?[\d.]+(?:e[+-]?\d+)?)\s*([a-zA-Z]*)/);
    return found ? Number(found[1]) * (UNITS[found[2]] || 1) : null;
  };
  const order = (first, second) => {
    const [a, b] = [sortKey(first), sortKey(second)];
    if (a !== null && b !== null) return a - b;
    return a !== null ? -1 : b !== null ? 1 : first.localeCompare(second);
  };
  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element("button", { type: "button", title: "sort by this column" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => order(a.cells[column].textContent, b.cells[column].textContent) * (down ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  };
  const show = (charts) => {
    document.getElementById("charts")?.replaceChildren();
    charts.forEach(draw);
    document.querySelectorAll("table:not([data-sortable])").forEach((table) => {
      table.setAttribute("data-sortable", "");
      makeSortable(table);
    });
  };
  const data = document.getElementById("data");
  if (data) show(JSON.parse(data.textContent));
  else window.showCharts = show;
})();
