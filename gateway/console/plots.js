// Draws the plots of a page with uPlot, from the values that the gateway writes into it. An update gives new values to
// the plots that are there, so that the pointer stays where it is.
"use strict";
const plots = (() => {
  const HEIGHT = 130;
  const FONT = "12px system-ui, sans-serif";
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const drawn = new Map(); // by title

  const style = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  const minutes = (second) => (second === 0 ? "now" : `${second / 60} min`.replace("-", "\u2212"));

  class Shown {
    constructor(figure) {
      this.read(figure);
      this.uplot = new uPlot(this.options(), this.columns(), figure);
    }

    read(figure) {
      this.figure = figure;
      this.data = JSON.parse(figure.dataset.plot);
      this.values = [...figure.querySelectorAll(".key output")];
      this.newest = this.values.map((value) => value.textContent);
    }

    update(figure) {
      this.read(figure);
      figure.append(this.uplot.root);
      this.resize();
      this.uplot.syncRect();
      this.uplot.setData(this.columns());
      this.name();
    }

    resize() {
      if (this.uplot.width !== this.figure.clientWidth) this.uplot.setSize({ width: this.figure.clientWidth, height: HEIGHT });
    }

    columns() {
      return [this.data.times, ...this.data.lines];
    }

    everyMinute() {
      return Array.from({ length: Math.floor(this.data.span / 60) + 1 }, (_, n) => -60 * n).reverse();
    }

    text(value) {
      return compact.format(value) + this.data.unit;
    }

    // The caption has the values under the pointer, or else the newest ones.
    name() {
      const at = this.uplot.cursor.idx;
      const isThere = at !== null && at !== undefined && at < this.data.times.length;
      this.values.forEach((value, n) => { value.textContent = isThere ? this.text(this.data.lines[n][at]) : this.newest[n]; });
      this.figure.querySelector("time").textContent = isThere ? `${Math.round(-this.data.times[at])} s ago` : "";
    }

    options() {
      const axis = { font: FONT, stroke: style("--faint"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
      return {
        width: this.figure.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: {
          x: { time: false, range: () => [-this.data.span, 0] },
          y: { range: (_, least, most) => [0, most > 0 ? most * 1.05 : 1] },
        },
        axes: [
          { ...axis, size: 24, splits: () => this.everyMinute(), values: (_, at) => at.map(minutes) },
          { ...axis, size: 46, space: 30, values: (_, at) => at.map(compact.format) },
        ],
        series: [{}, ...this.data.lines.map((_, n) => ({ stroke: style(`--series-${n + 1}`), width: 1.5, points: { show: false } }))],
        hooks: { setCursor: [() => { if (this.uplot) this.name(); }] },
      };
    }
  }

  function draw() {
    const figures = [...document.querySelectorAll("figure[data-plot]")];
    const titles = new Set(figures.map((figure) => figure.dataset.title));
    drawn.forEach((shown, title) => { if (!titles.has(title)) { shown.uplot.destroy(); drawn.delete(title); } });
    figures.forEach((figure) => {
      const known = drawn.get(figure.dataset.title);
      if (known) known.update(figure);
      else drawn.set(figure.dataset.title, new Shown(figure));
    });
  }

  addEventListener("resize", () => drawn.forEach((shown) => shown.resize()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((shown) => shown.uplot.redraw()));
  draw();
  return { draw };
})();
