// Two dots for each sensor: the error of the model and that of linear interpolation.

const MOST_SENSORS = 40;

function drawErrors() {
  const worst = [...page.data.errors].sort((a, b) => b[2] - a[2]).slice(0, MOST_SENSORS);
  const names = worst.map(([sensor]) => plain(shortened(sensorName(sensor), narrow() ? 9 : 18)));
  const places = worst.map((_, place) => place);
  const words = worst.map(
    ([sensor, cells, mae, linear]) =>
      `<b>${plain(sensorName(sensor))}</b><br>model ${number(mae)}, linear ${number(linear)}<br>${cells} hidden readings`,
  );
  const between = { x: [], y: [] };
  for (const [place, [, , mae, linear]] of worst.entries()) {
    between.x.push(mae, linear, null);
    between.y.push(place, place, null);
  }
  const dots = (values, fill, symbol) => ({
    type: "scatter", mode: "markers", x: values, y: places, text: words, hoverinfo: "text",
    marker: { size: 9, color: fill, symbol, line: { width: 1, color: colour("panel") } },
  });
  byId("errors-note").textContent =
    (worst.length < page.data.errors.length ? `The ${worst.length} sensors with the largest errors of ${page.data.errors.length}. ` : "") +
    "Circles: the model; diamonds: linear interpolation. The further a circle is to the left of its diamond, the more the model helps.";
  return put(
    "errors-chart",
    [
      { type: "scatter", mode: "lines", ...between, line: { color: colour("line"), width: 3 }, hoverinfo: "skip" },
      dots(worst.map((row) => row[3]), colour("grey"), "diamond"),
      dots(worst.map((row) => row[2]), colour("orange"), "circle"),
    ],
    {
      height: 70 + (page.printing ? 13 : 19) * worst.length,
      hovermode: "closest",
      xaxis: axis({
        rangemode: "tozero",
        title: { text: `mean absolute error${page.data.unit ? ` (${plain(page.data.unit)})` : ""}`, font: { size: 12.5 } },
      }),
      yaxis: axis({ tickvals: places, ticktext: names, range: [worst.length - 0.4, -0.6], showgrid: false, zeroline: false }),
    },
  );
}
