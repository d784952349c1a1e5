"use strict";
// Draws the charts of a report when they come into view, and makes its check boxes and tables work.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  root.classList.add("scripted");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  // At "beforeprint", the styles of the screen still apply, and these may be dark.
  const PAPER = { "--paper": "#fff", "--panel": "#fff", "--ink": "#000", "--soft": "#444", "--line": "#bbb" };
  const css = (name) => (printing ? PAPER[name] : getComputedStyle(root).getPropertyValue(name).trim());
  // Plotly interprets tags and entities in texts, so they are escaped. Isolates around a text keep
  // right-to-left writing from reordering the text beside it.
  const plain = (text, limit = 60) => {
    const shown = text.length > limit ? text.slice(0, limit - 1) + "…" : text;
    return "\u2068" + shown.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;") + "\u2069";
  };
  const withOpacity = (colour, opacity) => {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  };
  const number = (value) => (value === null ? "" : String(value)); // numbers are already rounded

  function hoverTexts(panel, series) {
    return series.x.map((x, k) => {
      const y = series.y[k];
      const lines = series.texts ? [plain(series.texts[k], 120)] : [];
      if (panel.rows) lines.push(`${plain(String(y))}: ${number(x)}`);
      else lines.push(`${plain(panel.x)}: ${number(x)}`, `${plain(panel.y)}: ${number(y)}`);
      if (series.low && series.low[k] !== null) lines.push(`${number(series.low[k])} to ${number(series.high[k])}`);
      return lines.join("<br>");
    });
  }

  function traces(panel, names) {
    const result = [];
    for (const series of panel.series) {
      const style = names[series.n];
      const colour = isDark() ? style.dark : style.light;
      const common = { meta: series.n, name: plain(style.name), showlegend: false };
      if (series.kind === "line" && series.low) {
        result.push({
          ...common, x: series.x.concat([...series.x].reverse()),
          y: series.high.concat([...series.low].reverse()), type: "scatter", mode: "lines",
          fill: "toself", fillcolor: withOpacity(colour, 0.14), line: { width: 0 }, hoverinfo: "skip",
        });
      }
      const trace = {
        ...common, x: series.x, y: panel.rows ? series.y.map((y) => plain(String(y))) : series.y,
        type: "scatter", text: hoverTexts(panel, series),
        hovertemplate: `<b>${plain(style.name)}</b><br>%{text}<extra></extra>`,
      };
      if (series.kind === "line") {
        trace.mode = "lines";
        trace.line = { color: colour, width: 2, dash: style.dash };
      } else {
        const many = !panel.rows && series.x.length > 500;
        trace.mode = "markers";
        trace.marker = {
          color: colour, size: panel.rows ? 9 : many ? 4 : 5, opacity: series.bare ? 0 : many ? 0.55 : 1,
          symbol: series.hollow ? "circle-open" : "circle", line: { width: series.hollow ? 2 : 0, color: colour },
        };
        if (series.low) {
          const middle = series.sideways ? series.x : series.y;
          trace[series.sideways ? "error_x" : "error_y"] = {
            type: "data", symmetric: false, color: colour, thickness: 1.2, width: 0,
            array: series.high.map((end, k) => end - middle[k]),
            arrayminus: series.low.map((end, k) => middle[k] - end),
          };
        }
      }
      result.push(trace);
    }
    return result;
  }

  // Label every decade, or fewer on long axes; on axes of less than two decades, label 2 and 5 too.
  function logTicks(values) {
    const positive = values.filter((v) => v > 0);
    const span = Math.log10(Math.max(...positive) / Math.min(...positive));
    return span > 1.7 ? Math.ceil(span / 6) : "D2";
  }

  function axis(title, log, range, values) {
    return {
      title: { text: plain(title), font: { size: 12 }, standoff: 8 }, type: log ? "log" : undefined,
      range: range ? range.map((v) => (log ? Math.log10(v) : v)) : undefined,
      gridcolor: css("--line"), zeroline: false, linecolor: css("--soft"), ticks: "outside",
      tickcolor: css("--line"), automargin: true,
      ...(log ? { tickformat: "~g", dtick: logTicks(range || values) } : { nticks: 7 }),
    };
  }

  function layout(panel) {
    const shapes = panel.marks.map((mark) => ({
      type: "line", layer: "above", line: { color: css("--soft"), width: 1.2, dash: "dot" },
      ...(mark.axis === "x"
        ? { x0: mark.at, x1: mark.at, y0: 0, y1: 1, yref: "paper" }
        : { y0: mark.at, y1: mark.at, x0: 0, x1: 1, xref: "paper" }),
    }));
    const annotations = panel.marks.map((mark, k) => ({
      text: plain(mark.label), showarrow: false, font: { size: 11, color: css("--soft") },
      bgcolor: css("--panel"),
      ...(mark.axis === "x"
        ? { x: panel.log.includes("x") ? Math.log10(mark.at) : mark.at, y: 1 - 0.07 * k, yref: "paper", xanchor: "left", yanchor: "top" }
        : { y: panel.log.includes("y") ? Math.log10(mark.at) : mark.at, x: 1, xref: "paper", xanchor: "right", yanchor: "bottom" }),
    }));
    const all = (name) => panel.series.flatMap((series) => series[name]);
    const y = axis(panel.y, panel.log.includes("y"), panel.yRange, all("y"));
    if (panel.rows) {
      Object.assign(y, {
        type: "category", categoryorder: "array", title: undefined, nticks: 0,
        categoryarray: panel.rows.map((row) => plain(row)), autorange: "reversed", ticks: "",
        range: undefined, tickmode: "linear", dtick: 1,
      });
    }
    return {
      title: panel.title ? { text: plain(panel.title), font: { size: 13 }, x: 0.02, y: 0.98, yanchor: "top" } : undefined,
      margin: { l: 12, r: 14, t: panel.title ? 34 : 16, b: 12 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { family: "system-ui, sans-serif", color: css("--ink"), size: 12 },
      hovermode: "closest", dragmode: touchScreen.matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--soft"), font: { color: css("--ink") }, align: "left" },
      xaxis: axis(panel.x, panel.log.includes("x"), panel.xRange, all("x")), yaxis: y, shapes, annotations,
    };
  }

  // The buttons are listed, because one of plotly's defaults sends the chart to a server.
  const CONFIG = {
    responsive: true, displaylogo: false, showTips: false, doubleClick: "reset", plotlyServerURL: "",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };
  // On touch screens, dragging must scroll the page, not zoom the chart under the finger.
  const touchScreen = matchMedia("(pointer: coarse)");
  const PRINT_WIDTH = 660; // pixels that fit on a portrait page of A4 or letter
  const drawn = new Set();

  function hiddenNames(figure) {
    return new Set([...figure.querySelectorAll("input[data-name]")].filter((box) => !box.checked).map((box) => Number(box.dataset.name)));
  }

  function draw(plot) {
    const figure = plot.closest("figure");
    const chart = charts[figure.dataset.chart];
    const panel = chart.panels[Number(plot.dataset.panel)];
    const hidden = hiddenNames(figure);
    const data = traces(panel, chart.names);
    for (const trace of data) trace.visible = !hidden.has(trace.meta);
    const frame = layout(panel);
    if (printing) {
      const width = chart.panels.length > 1 ? PRINT_WIDTH / 2 - 8 : PRINT_WIDTH;
      Object.assign(frame, { autosize: false, width, height: panel.rows ? 80 + 22 * panel.rows.length : 225 });
    }
    const before = drawn.has(plot) && plot.layout;
    if (before && before.xaxis && before.xaxis.autorange === false) frame.xaxis.range = before.xaxis.range;
    if (before && before.yaxis && before.yaxis.autorange === false && !panel.rows) frame.yaxis.range = before.yaxis.range;
    if (!drawn.has(plot)) plot.replaceChildren(); // remove the description shown until now
    Plotly.react(plot, data, frame, CONFIG);
    for (const tool of plot.querySelectorAll(".modebar [tabindex], .modebar button, .modebar a")) tool.tabIndex = -1;
    drawn.add(plot);
    plot.dataset.drawn = "yes";
  }

  const plots = [...document.querySelectorAll(".plot")];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "400px" });
  plots.forEach((plot) => watcher.observe(plot));

  document.addEventListener("change", (event) => {
    const box = event.target.closest("input[data-name]");
    if (!box) return;
    for (const plot of box.closest("figure").querySelectorAll(".plot")) {
      if (!drawn.has(plot)) continue;
      const places = plot.data.map((trace, k) => (trace.meta === Number(box.dataset.name) ? k : -1)).filter((k) => k >= 0);
      if (places.length) Plotly.restyle(plot, { visible: box.checked }, places);
    }
  });

  // Keys on the focused chart: + and - zoom, the arrow keys move, and 0 resets.
  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest && event.target.closest(".plot");
    if (!plot || !drawn.has(plot) || event.ctrlKey || event.metaKey || event.altKey) return;
    const zoom = { "+": 0.8, "=": 0.8, "-": 1.25 }[event.key];
    const move = { ArrowLeft: ["xaxis", -0.1], ArrowRight: ["xaxis", 0.1], ArrowUp: ["yaxis", 0.1], ArrowDown: ["yaxis", -0.1] }[event.key];
    const full = plot._fullLayout;
    const span = (name, factor, shift) => {
      const [a, b] = full[name].range;
      const middle = (a + b) / 2 + shift * (b - a), half = ((b - a) / 2) * factor;
      return { [`${name}.range`]: [middle - half, middle + half] };
    };
    const numeric = full.yaxis.type !== "category";
    if (zoom) Plotly.relayout(plot, { ...span("xaxis", zoom, 0), ...(numeric ? span("yaxis", zoom, 0) : {}) });
    else if (move && (numeric || move[0] === "xaxis")) Plotly.relayout(plot, span(move[0], 1, move[1]));
    else if (event.key === "0") { drawn.delete(plot); draw(plot); }
    else return;
    event.preventDefault();
  });

  const redraw = () => drawn.forEach(draw);
  dark.addEventListener("change", redraw);
  const themes = ["automatic", "light", "dark"];
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "automatic") + 1) % 3];
    if (next === "automatic") delete root.dataset.theme;
    else root.dataset.theme = next;
    button.textContent = `Theme: ${next}`;
    redraw();
  });

  // For printing, draw all charts, also those that were never in view, at the width of the page.
  const setPrinting = (value) => {
    if (printing === value) return;
    printing = value;
    plots.forEach(draw);
    if (!value) plots.forEach((plot) => Plotly.Plots.resize(plot));
  };
  const printMedia = matchMedia("print");
  printMedia.addEventListener("change", () => setPrinting(printMedia.matches));
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(printMedia.matches));

  const status = document.body.appendChild(document.createElement("div"));
  status.setAttribute("role", "status");
  let timer = 0;
  const showStatus = (text) => {
    status.textContent = text;
    clearTimeout(timer);
    timer = setTimeout(() => { status.textContent = ""; }, 2500);
  };

  const raw = (cell) => (cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim());
  const compare = (one, two) => {
    const [a, b] = [Number(one), Number(two)];
    if (one === "" || two === "") return (one === "") - (two === "");
    return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(two, undefined, { numeric: true }) : a - b;
  };
  const cells = (table) => [...table.rows].map((row, k) => [...row.cells].map((cell) => (k ? raw(cell) : cell.textContent.trim())));
  // Spreadsheets would run a cell that begins with one of these characters as a formula.
  const withoutFormula = (text) => (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
  const csv = (rows) => rows.map((row) => row.map((text) => {
    const safe = withoutFormula(text);
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  }).join(",")).join("\n") + "\n";

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = text;
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    showStatus("Copied.");
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = button.closest("thead th");
    if (head) {
      const table = head.closest("table");
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const place = head.cellIndex, body = table.tBodies[0];
      const rows = [...body.rows].sort((one, two) => {
        const [a, b] = [raw(one.cells[place]), raw(two.cells[place])];
        return a === "" || b === "" ? compare(a, b) : (descending ? -1 : 1) * compare(a, b);
      });
      body.append(...rows);
      return;
    }
    const holder = button.closest(".table");
    if (button.dataset.copies === "code") copy(button.parentElement.querySelector("code").textContent);
    else if (button.dataset.copies) copy(cells(holder.querySelector("table")).map((row) => row.map(withoutFormula).join("\t")).join("\n"));
    else if (button.dataset.downloads) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff", csv(cells(holder.querySelector("table")))], { type: "text/csv" }));
      link.download = button.dataset.downloads;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }
  });
})();
