// Sensors down, time across: how much of each bin was filled, and on top of it how much of it is flagged.

function drawCoverage() {
  const { times, sensors, measured, flagged } = page.data.coverage;
  const rows = sensors.length - 1;
  const columns = times.length - 1;
  const filledShare = [];
  const flaggedShare = [];
  const words = [];
  for (let row = 0; row < rows; row += 1) {
    const several = sensors[row + 1] - sensors[row];
    const first = plain(sensorName(sensors[row]));
    const name = several === 1 ? first : `${first} to ${plain(sensorName(sensors[row + 1] - 1))}`;
    filledShare.push([]);
    flaggedShare.push([]);
    words.push([]);
    for (let column = 0; column < columns; column += 1) {
      const steps = times[column + 1] - times[column];
      const cells = steps * several;
      const filled = cells - measured[row][column];
      const bad = flagged[row][column];
      filledShare[row].push(filled / cells);
      flaggedShare[row].push(bad ? bad / cells : null);
      words[row].push(`<b>${name}</b><br>${binTime(times, column, steps)}<br>${binShares(cells, filled, bad)}`);
    }
  }
  const edges = times.map(timeOf);
  const shared = { type: "heatmap", x: edges, zmin: 0, zmax: 1, showscale: false, hoverinfo: "none" };
  const shown = { ...shared, hoverinfo: "text", text: words };
  const labels = labelledRows(rows, sensors);
  const row = page.printing ? 12 : narrow() ? 13 : 17; // on paper it stands below the heading, on the first page
  const height = Math.min(Math.max(rows * row + 50, 180), page.printing ? 480 : 640);
  const ramp = [[0, colour("cell")], [0.5, colour("some")], [1, colour("orange")]];
  return put(
    "coverage-chart",
    [
      { ...shown, z: filledShare, colorscale: ramp },
      { ...shown, z: flaggedShare, colorscale: [[0, seeThrough(colour("flag"), 0.3)], [1, colour("flag")]] },
    ],
    {
      height,
      margin: { l: 8, r: 30, t: 10, b: 8 }, // room for the last month's name
      xaxis: axis({ type: "date", showgrid: false }),
      yaxis: axis({ autorange: "reversed", showgrid: false, zeroline: false, ticklen: 3, tickfont: { size: page.printing ? 10 : 11.5 }, ...labels }),
      hovermode: "closest",
    },
  );
}

function binTime(times, column, steps) {
  const from = written(timeOf(times[column]));
  return steps === 1 ? from : `${from} to ${written(timeOf(times[column + 1] - 1))}`;
}

function binShares(cells, filled, flagged) {
  if (cells === 1) return flagged ? "filled, flagged" : filled ? "filled" : "measured";
  const bad = flagged ? `, ${percent(flagged / cells)} flagged` : "";
  return `${percent(1 - filled / cells)} measured, ${percent(filled / cells)} filled${bad}`;
}

// As many names as fit; the others are told when the pointer is over them.
function labelledRows(rows, sensors) {
  const every = Math.ceil(rows / (rows <= 40 ? 40 : 24));
  const shown = Array.from({ length: rows }, (_, row) => row).filter((row) => row % every === 0);
  return {
    tickvals: shown,
    ticktext: shown.map((row) => plain(shortened(sensorName(sensors[row]), narrow() ? 9 : 18))),
  };
}
