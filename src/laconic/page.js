// Draws the figures beside their data, in the colors that the style sheet has at the moment.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");

  const colored = (value, style) => {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.map((item) => colored(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, colored(item, style)]));
  };

  const axis = (given, style) => ({
    gridcolor: style.getPropertyValue("--grid").trim(),
    linecolor: style.getPropertyValue("--line").trim(),
    zeroline: false,
    showline: true,
    ticks: "",
    ...given,
    ticklabelstandoff: 5,
    title: { standoff: 12, font: { size: 13 }, ...given.title },
  });

  // Named ticks of a logarithmic axis, as many as have room.
  const thinned = (given, width) => {
    if (given.type !== "log") return given;
    const [from, to] = given.domain ?? [0, 1];
    const every = Math.ceil((given.tickvals.length * 48) / ((to - from) * width));
    const kept = (items) => items.filter((_, i) => i % every === 0);
    return { ...given, tickvals: kept(given.tickvals), ticktext: kept(given.ticktext) };
  };

  // Room for the text that begins where the longest bar ends.
  const widened = (given, width) => {
    const room = Math.max(160, width - 90);
    return { ...given, range: [0, (given.range[1] * room) / (room - 64)] };
  };

  const themed = (layout, style, width) => {
    if (layout.annotations) layout.xaxis = widened(layout.xaxis, width);
    const axes = Object.keys(layout).filter((key) => /^[xy]axis/.test(key));
    return {
      ...layout,
      ...Object.fromEntries(axes.map((key) => [key, axis(thinned(layout[key], width), style)])),
      autosize: true,
      showlegend: false,
      dragmode: touch.matches ? false : "zoom",
      hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 16, r: 12, t: 8, b: 52 },
      font: { family: style.fontFamily, size: 13, color: style.getPropertyValue("--soft").trim() },
      hoverlabel: {
        align: "left",
        bgcolor: style.getPropertyValue("--raised").trim(),
        bordercolor: style.getPropertyValue("--line").trim(),
        font: { family: style.fontFamily, size: 13, color: style.getPropertyValue("--ink").trim() },
      },
    };
  };

  const pressed = (name) =>
    [...document.querySelectorAll(`button[data-figures~="${name}"]`)].map(
      (button) => button.getAttribute("aria-pressed") === "true",
    );

  const draw = () => {
    const style = getComputedStyle(document.body);
    for (const source of document.querySelectorAll("script[data-chart]")) {
      const name = source.dataset.chart;
      const figure = JSON.parse(source.textContent);
      const shown = pressed(name);
      const data = figure.data.map((trace, i) => ({ ...colored(trace, style), visible: shown[i] ?? true }));
      const width = document.getElementById(name).clientWidth - 80;
      const layout = themed(colored(figure.layout, style), style, width);
      Plotly.react(name, data, layout, { responsive: true, displayModeBar: false });
    }
  };

  for (const button of document.querySelectorAll("button[data-trace]")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      draw();
    });
  }
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  });
  dark.addEventListener("change", draw);
  draw();
})();
