"""The page of `make demo`: one HTML file that contains its drawings and loads nothing else."""
import html

from thalweg.lab.demo_words import first_line, note_on_processors, why_not
from thalweg.lab.figures.draw import render

STYLE = """
:root { --ink: #222; --muted: #666; --paper: #fff; --line: #ddd; --host: #eaf3fa; --switch: #fff4e5;
  --lossy: #c25200; --good: #e8f5ef; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --muted: #a2a9b1; --paper: #15181d;
  --line: #383e46; --host: #1d3346; --switch: #443218; --lossy: #f0813a; --good: #173129; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1080px; margin: 1.5em auto; padding: 0 1em; }
h1 { font-size: 1.55em; line-height: 1.25; margin-bottom: 0.3em; }
h2 { font-size: 1.15em; margin: 2em 0 0.3em; } p { max-width: 46em; margin: 0.4em 0; }
.muted { color: var(--muted); font-size: 0.92em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1em 0; white-space: nowrap; }
th, td { padding: 0.35em 0.7em; text-align: right; }
th { border-bottom: 2px solid var(--ink); font-weight: 600; }
td { border-bottom: 1px solid var(--line); } tr.best td { background: var(--good); }
th:first-child, td:first-child { text-align: left; padding-left: 0.2em; }
svg { width: 100%; height: auto; max-width: 560px; display: block; }
.pair { display: flex; flex-wrap: wrap; gap: 1em; }
.pair > div { flex: 1 1 320px; max-width: 520px; }
.link { stroke: var(--muted); } .lossy { stroke: var(--lossy); stroke-dasharray: 7 5; }
.rate { fill: var(--muted); } .losses { fill: var(--lossy); } .name { fill: var(--ink); }
.host { fill: var(--host); } .switch { fill: var(--switch); } .host, .switch { stroke: var(--ink); }
"""
SMOOTH = 5  # one of so many samples is drawn, because rates between close samples jump
BUSY_BYTES = 100_000  # more bytes than this between two samples mean that a training runs
ROW_HEIGHT, BOX_WIDTH, BOX_HEIGHT = 92, 86, 36
LEAST_WIDTH, GAP = 380, 8  # of the drawing, and between two boxes: readable on a phone


def _levels(network):
    """Returns the rows of nodes to draw, the hosts last, and the two ends of each link.

    Nodes in a row have the same distance from the hosts.
    """
    hosts = [host["name"] for host in network["hosts"]]
    ends = [[arc["from"] for arc in link["arcs"]] for link in network["links"]]
    level = {name: 0 for name in hosts}
    while True:
        found = {other: level[one] + 1 for pair in ends for one, other in (pair, pair[::-1])
                 if one in level and other not in level}
        if not found:
            break
        level.update(found)
    rows = [[name for name in level if level[name] == n] for n in range(max(level.values()) + 1)]
    return rows[::-1], ends


def topology_svg(network, loss):
    """Draws the network with the hosts at the bottom.

    Faster links are wider, and those that lose packets are dashed.
    """
    rows, ends = _levels(network)
    width = max(LEAST_WIDTH, max(map(len, rows)) * (BOX_WIDTH + GAP))
    place = {}
    for y, row in enumerate(rows):
        for x, name in enumerate(row):
            place[name] = (width * (x + 0.5) / len(row), 40 + y * ROW_HEIGHT)
    addresses = {host["name"]: host["address"] for host in network["hosts"]}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" '
             f'viewBox="0 0 {width} {(len(rows) - 1) * ROW_HEIGHT + BOX_HEIGHT + 26}" role="img" '
             f'font-family="system-ui, sans-serif"><title>the topology</title>']
    fastest = max(link["rate_bps"] for link in network["links"])
    for link, (a, b) in zip(network["links"], ends):
        (x1, y1), (x2, y2) = place[a], place[b]
        lossy = a not in addresses and b not in addresses
        parts.append(f'<line class="{"lossy" if lossy else "link"}" x1="{x1:.0f}" y1="{y1:.0f}" '
                     f'x2="{x2:.0f}" y2="{y2:.0f}" '
                     f'stroke-width="{1.5 + 2.5 * link["rate_bps"] / fastest:.1f}"/>')
        label = f"{link['rate_bps'] / 1e6:g} Mb/s" + (f", {loss} lost" if lossy else "")
        low, high = sorted([(y1, x1), (y2, x2)])[::-1]
        side = -1 if low[1] < high[1] else 1
        parts.append(f'<text class="{"losses" if lossy else "rate"}" '
                     f'x="{(x1 + x2) / 2 + 10 * side:.0f}" y="{(y1 + y2) / 2:.0f}" '
                     f'font-size="11" text-anchor="{"end" if side < 0 else "start"}">'
                     f'{html.escape(label)}</text>')
    for name, (x, y) in place.items():
        host = name in addresses
        parts.append(f'<rect class="{"host" if host else "switch"}" x="{x - BOX_WIDTH / 2:.0f}" '
                     f'y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
                     f'rx="{4 if host else 17}"/>')
        second = (f'<tspan class="rate" x="{x:.0f}" dy="13" font-size="10">'
                  f'{addresses.get(name, "switch")}</tspan>')
        parts.append(f'<text class="name" x="{x:.0f}" y="{y - 2:.0f}" text-anchor="middle" '
                     f'font-size="12">{html.escape(name)}{second}</text>')
    return "".join(parts) + "</svg>"


def _uplinks(network):
    """Returns (link, side, name) of each link between switches, in the direction from the hosts."""
    rows, ends = _levels(network)
    height = {name: -y for y, row in enumerate(rows) for name in row}
    hosts = set(rows[-1])
    found = []
    for link, pair in enumerate(ends):
        if hosts & set(pair):
            continue
        side = 0 if height[pair[0]] < height[pair[1]] else 1
        found.append((link, side, f"{pair[side]} to {pair[1 - side]}"))
    return found


def _while_busy(samples, uplinks):
    """Returns the samples from shortly before until shortly after a training's traffic."""
    carried = [sum(sample["links"][link]["arcs"][side]["bytes"] for link, side, _ in uplinks)
               for _, sample in samples]
    busy = [i for i in range(1, len(carried)) if carried[i] - carried[i - 1] > BUSY_BYTES]
    return samples[max(0, busy[0] - 10):busy[-1] + 10] if busy else samples


def timeline(network, run):
    """Returns a figure of what the links between racks carried and queued during one training."""
    uplinks = _uplinks(network)
    samples = _while_busy(run["samples"], uplinks)[::SMOOTH]
    times = [at - samples[0][0] for at, _ in samples]
    flows, queues = [], []
    for link, side, name in uplinks:
        counted = [sample["links"][link]["arcs"][side] for _, sample in samples]
        rates = [8e-6 * (b["bytes"] - a["bytes"]) / max(1e-6, t - s)
                 for a, b, s, t in zip(counted, counted[1:], times, times[1:])]
        flows.append({"name": name, "x": times[1:], "y": rates})
        queues.append({"name": name, "x": times, "y": [arc["queued"] / 1000 for arc in counted]})
    return {"title": run["name"], "columns": 1, "narrow": True, "panels": [
        {"kind": "lines", "title": "carried by the links between racks", "y_label": "Mb/s",
         "x_label": "seconds", "series": flows},
        {"kind": "lines", "title": "waiting at their ports", "y_label": "kB", "x_label": "seconds",
         "series": queues}]}


def every_step(runs):
    """Returns a figure with a point for each step of each training."""
    return {"narrow": True, "panels": [
        {"kind": "points", "title": "each point is a step", "x_label": "step", "y_label": "ms",
         "series": [{"name": run["name"], "x": list(range(1, len(run["steps"]) + 1)),
                     "y": [step * 1e3 for step in run["steps"]]} for run in runs]}]}


def tails(runs):
    """Returns a figure of how many steps took longer than a time. Its axis shows rare ones as well."""
    series = []
    for run in runs:
        steps = sorted(step * 1e3 for step in run["steps"])
        series.append({"name": run["name"], "x": steps,
                       "y": [100 * (len(steps) - i) / len(steps) for i in range(len(steps))]})
    return {"narrow": True, "panels": [
        {"kind": "steps", "title": "steps that took at least so long", "x_label": "ms a step",
         "y_label": "% of steps (logarithmic)", "log_y": True, "series": series}]}


def accuracy(runs):
    least = min(right for run in runs for _, right in run["accuracy"])
    return {"narrow": True, "panels": [
        {"kind": "lines", "y_range": [max(0, 100 * least - 5), 100],
         "title": "digits of the test that are right", "x_label": "seconds of training",
         "y_label": "%", "series": [
             {"name": run["name"], "x": [at for at, _ in run["accuracy"]],
              "y": [100 * right for _, right in run["accuracy"]]} for run in runs]}]}


def _svg(one):
    text = render(one, "svg").decode()
    return text[text.index("<svg"):]


def _table(rows):
    head = "".join(f"<th>{name}</th>" for name in
                   ("library", "step p50", "mean", "p99", "training", "accuracy", "packets",
                    "lost", "CPU busy"))
    body = "".join(f"<tr{' class=best' if row['planned'] else ''}>"
                   f"<td>{html.escape(row['library'])}</td><td>{row['p50_ms']:.0f} ms</td>"
                   f"<td>{row['mean_ms']:.0f} ms</td><td>{row['p99_ms']:.0f} ms</td>"
                   f"<td>{row['total_s']:.1f} s</td>"
                   f"<td>{row['accuracy']:.1%}</td><td>{row['frames']:,}</td>"
                   f"<td>{row['lost']:,}</td><td>{row['busy']:.0%}</td></tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def page(network, runs, rows, loss):
    """Returns the page. The first row is Gloo's, and the row with `planned` is ours."""
    gloo, ours = rows[0], next(row for row in rows if row["planned"])
    said, numbers = first_line(gloo, ours, loss)
    reasons = "".join(f"<p>{html.escape(text)}</p>" for text in
                      (*(why_not(gloo, row) for row in rows[1:]), note_on_processors(rows)) if text)
    timelines = "".join(f"<div>{_svg(timeline(network, run))}</div>" for run in runs)
    on_a_link = f"{float(loss.split()[0]) / 2:g} %"  # a packet passes two
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Thalweg: the same training, the same lossy network</title>
<style>{STYLE}</style></head><body>
<h1>{html.escape(said)}</h1>
<p>Step times: {html.escape(numbers)}. {ours["steps"]} steps of each, one run; the first three, which
make connections, are not counted.</p>
<p class="muted">Written by <code>make demo</code>. {len(network["hosts"])} ranks of PyTorch on this
machine, each in a network namespace; every packet goes through the switches drawn below
(<code>thalweg testbed</code>). Gloo has its defaults. "Told the network" gives the file of the network
to Thalweg, whose planner then chooses how to add up; every sum is exact.</p>
{_table(rows)}
{reasons}
<h2>How long steps took</h2>
<div class="pair"><div>{_svg(every_step(runs))}</div><div>{_svg(tails(runs))}</div></div>
<h2>The network and its losses</h2>
<p class="muted">A packet from rack to rack passes both dashed links. {html.escape(loss)} of them are
lost, at random.</p>
{topology_svg(network, on_a_link)}
<h2>What was learnt, over time</h2>
{_svg(accuracy(runs))}
<h2>What the links between racks carried</h2>
<p class="muted">Counted every 250 ms at the ports of the switches, while the training lasted.</p>
<div class="pair">{timelines}</div>
</body></html>
"""
