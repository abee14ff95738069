// For one filled value: the weight of every neighbour and step, by likeness alone and after the gates.

const attention = { chosen: 0 };
const BLUES = {
  light: [[0, "#eef3f7"], [0.25, "#a9cfe6"], [0.6, "#0072b2"], [1, "#00294a"]],
  dark: [[0, "#202c38"], [0.3, "#1d5c87"], [0.65, "#56b4e9"], [1, "#eaf7ff"]],
};

function startAttention() {
  const { values } = page.data;
  if (!values?.length) return;
  fillSelect(byId("value-chosen"), values.map(({ label }, place) => [place, label]));
  byId("value-chosen").addEventListener("change", (event) => {
    attention.chosen = Number(event.target.value);
    drawAttention();
  });
}

function drawAttention() {
  const { values, gates } = page.data;
  if (!values?.length) return;
  const value = values[attention.chosen];
  byId("value-words").textContent = `${value.words} Drawn most from ${value.causes.join(", ")}.`;
  const panels = gates
    ? [["by likeness alone", value.attention], ["with causal gates", value.weight]]
    : [["weight", value.weight]];
  const most = Math.max(...panels.flatMap(([, weights]) => weights.flat()), 0.01);
  const rowHeight = narrow() ? 15 : 18;
  const stacked = narrow() || panels.length === 1;
  const panelHeight = value.sources.length * rowHeight + 34;
  const layout = {
    height: (stacked ? panels.length : 1) * panelHeight + 98,
    hovermode: "closest", annotations: [], shapes: [], margin: { l: 8, r: 8, t: 28, b: 70 },
  };
  const traces = panels.map((panel, place) => {
    const box = stacked ? stackedBox(place, panels.length, panelHeight) : { x: place ? [0.52, 1] : [0, 0.48], y: [0, 1] };
    return attentionPanel(value, panel, { place, box, layout, most, last: place === panels.length - 1, stacked });
  });
  return put("value-chart", traces, layout);
}

function stackedBox(place, count, panelHeight) {
  const top = 1 - place / count;
  return { x: [0, 1], y: [Math.max(top - (panelHeight - 34) / (count * panelHeight), 0), top] };
}

// One heat map; its axes, heading and the line of the value itself go into the layout.
function attentionPanel(value, [title, weights], { place, box, layout, most, last, stacked }) {
  const suffix = place ? String(place + 1) : "";
  const names = value.sources.map((sensor) =>
    sensor === value.sensor ? "itself" : plain(shortened(sensorName(sensor), narrow() ? 9 : 14)));
  const rows = names.map((_, row) => row);
  const when = value.offsets.map((offset) =>
    offset === 0 ? "at that time" : `${Math.abs(offset)} step${Math.abs(offset) === 1 ? "" : "s"} ${offset < 0 ? "before" : "after"}`);
  layout[`xaxis${suffix}`] = axis({
    anchor: `y${suffix}`, domain: box.x, showgrid: false, zeroline: false, showticklabels: last || !stacked,
    title: { text: last || !stacked ? `steps of ${page.data.clock.words} before (−) and after the value` : "", font: { size: 12 }, standoff: 6 },
  });
  layout[`yaxis${suffix}`] = axis({
    anchor: `x${suffix}`, domain: box.y, range: [rows.length - 0.5, -0.5], tickvals: rows, ticktext: names,
    showgrid: false, zeroline: false, tickfont: { size: 11 },
    showticklabels: stacked || place === 0, ticks: stacked || place === 0 ? "outside" : "",
  });
  layout.annotations.push({
    text: title, xref: "paper", yref: "paper", x: box.x[0], y: box.y[1], xanchor: "left", yanchor: "bottom", showarrow: false,
    font: { size: 13, color: colour("ink") },
  });
  layout.shapes.push({
    type: "line", xref: `x${suffix}`, yref: `y${suffix} domain`, x0: 0, x1: 0, y0: 0, y1: 1,
    line: { color: colour("orange"), width: 1.4, dash: "2px,3px" },
  });
  return {
    type: "heatmap", z: weights, x: value.offsets, y: rows, xaxis: `x${suffix}`, yaxis: `y${suffix}`,
    zmin: 0, zmax: most, colorscale: isDark() ? BLUES.dark : BLUES.light, xgap: 1, ygap: 1, hoverinfo: "text",
    text: weights.map((row, source) => row.map((weight, step) => `<b>${names[source]}</b>, ${when[step]}<br>${number(weight)}%`)),
    showscale: last,
    colorbar: {
      orientation: "h", thickness: 9, len: narrow() ? 1 : 0.4, x: 0, xanchor: "left", y: 0, yanchor: "bottom", yref: "container",
      ypad: 4, title: { text: "share of the value", side: "right", font: { size: 11, color: colour("soft") } }, ticksuffix: "%", nticks: 4, outlinewidth: 0, tickfont: { size: 10.5, color: colour("soft") },
    },
  };
}
