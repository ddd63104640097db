"""The page of `make demo`: one file of HTML with drawings inside, which needs nothing from anywhere else."""
import html

from thalweg import figure

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.7em; margin-bottom: 0.1em; } h2 { font-size: 1.15em; margin-top: 2em; }
p { max-width: 62em; } .muted { color: #666; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: 0.35em 0.9em; text-align: right; }
th { border-bottom: 2px solid #222; font-weight: 600; } td { border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } svg { max-width: 100%; height: auto; }
.pair { display: flex; flex-wrap: wrap; gap: 1em; } .pair > div { flex: 1 1 460px; max-width: 530px; }
"""
INK, MUTED, LOSSY = "#222222", "#666666", "#D55E00"
BUSY_BYTES = 100_000  # between two samples: a training is on
ROW_HEIGHT, BOX_WIDTH, BOX_HEIGHT = 105, 116, 34


def _levels(network):
    """Nodes by distance from the hosts, the hosts last: what is drawn in a row."""
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
    """The network: hosts below, links as wide as their rate, those that lose packets dashed."""
    rows, ends = _levels(network)
    width = max(640, max(map(len, rows)) * (BOX_WIDTH + 40))
    place = {}
    for y, row in enumerate(rows):
        for x, name in enumerate(row):
            place[name] = (width * (x + 0.5) / len(row), 40 + y * ROW_HEIGHT)
    addresses = {host["name"]: host["address"] for host in network["hosts"]}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(rows) * ROW_HEIGHT - 35}" role="img" '
             f'font-family="system-ui, sans-serif"><title>the topology</title>']
    fastest = max(link["rate_bps"] for link in network["links"])
    for link, (a, b) in zip(network["links"], ends):
        (x1, y1), (x2, y2) = place[a], place[b]
        lossy = a not in addresses and b not in addresses
        dashes = f' stroke-dasharray="7 5" stroke="{LOSSY}"' if lossy else f' stroke="{MUTED}"'
        parts.append(f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"{dashes} '
                     f'stroke-width="{1.5 + 2.5 * link["rate_bps"] / fastest:.1f}"/>')
        label = f"{link['rate_bps'] / 1e6:g} Mb/s" + (f", {loss} lost" if lossy else "")
        low, high = sorted([(y1, x1), (y2, x2)])[::-1]
        side = -1 if low[1] < high[1] else 1
        parts.append(f'<text x="{(x1 + x2) / 2 + 12 * side:.0f}" y="{(y1 + y2) / 2:.0f}" font-size="11" '
                     f'text-anchor="{"end" if side < 0 else "start"}" '
                     f'fill="{LOSSY if lossy else MUTED}">{html.escape(label)}</text>')
    for name, (x, y) in place.items():
        host = name in addresses
        parts.append(f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
                     f'height="{BOX_HEIGHT}" rx="{4 if host else 17}" fill="{"#EAF3FA" if host else "#FFF4E5"}" '
                     f'stroke="{INK}"/>')
        second = f'<tspan x="{x:.0f}" dy="13" font-size="10" fill="{MUTED}">{addresses.get(name, "switch")}</tspan>'
        parts.append(f'<text x="{x:.0f}" y="{y - 2:.0f}" text-anchor="middle" font-size="12" fill="{INK}">'
                     f'{html.escape(name)}{second}</text>')
    return "".join(parts) + "</svg>"


def _uplinks(network):
    """Of each link between switches, the direction away from the hosts: (link, side, name)."""
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
    """The samples from a moment before the links carry a training's traffic to a moment after."""
    carried = [sum(sample["links"][link]["arcs"][side]["bytes"] for link, side, _ in uplinks) for _, sample in samples]
    busy = [i for i in range(1, len(carried)) if carried[i] - carried[i - 1] > BUSY_BYTES]
    return samples[max(0, busy[0] - 10):busy[-1] + 10] if busy else samples


def timeline(network, run):
    """What the links between racks carried and queued, over one training."""
    uplinks = _uplinks(network)
    samples = _while_busy(run["samples"], uplinks)
    times = [at - samples[0][0] for at, _ in samples]
    flows, queues = [], []
    for link, side, name in uplinks:
        counted = [sample["links"][link]["arcs"][side] for _, sample in samples]
        rates = [8e-6 * (b["bytes"] - a["bytes"]) / max(1e-6, t - s)
                 for a, b, s, t in zip(counted, counted[1:], times, times[1:])]
        flows.append({"name": name, "x": times[1:], "y": rates})
        queues.append({"name": name, "x": times, "y": [arc["queued"] / 1000 for arc in counted]})
    return {"title": run["name"], "columns": 1, "panels": [
        {"kind": "lines", "title": "carried by the links between racks", "y_label": "Mb/s", "x_label": "seconds",
         "series": flows},
        {"kind": "lines", "title": "waiting at their ports", "y_label": "kB", "x_label": "seconds", "series": queues}]}


def distribution(runs):
    series = []
    for run in runs:
        steps = sorted(step * 1e3 for step in run["steps"])
        series.append({"name": run["name"], "x": steps, "y": [100 * (i + 1) / len(steps) for i in range(len(steps))]})
    return {"panels": [{"kind": "steps", "title": "steps that took no longer", "x_label": "milliseconds a step",
                        "y_label": "% of steps", "log_x": True, "series": series}]}


def accuracy(runs):
    least = min(right for run in runs for _, right in run["accuracy"])
    return {"panels": [{"kind": "lines", "y_range": [max(0, 100 * least - 5), 100],
                        "title": "digits of the test that are right", "x_label": "seconds of training",
                        "y_label": "%", "series": [
                            {"name": run["name"], "x": [at for at, _ in run["accuracy"]],
                             "y": [100 * right for _, right in run["accuracy"]]} for run in runs]}]}


def _svg(one):
    text = figure.render(one, "svg").decode()
    return text[text.index("<svg"):]


def _table(rows):
    head = "".join(f"<th>{name}</th>" for name in
                   ("library", "step p50", "step p99", "training", "accuracy", "packets", "lost on the way"))
    body = "".join(f"<tr><td>{html.escape(row['library'])}</td><td>{row['p50_ms']:.0f} ms</td><td>{row['p99_ms']:.0f} ms</td>"
                   f"<td>{row['total_s']:.1f} s</td><td>{row['accuracy']:.1%}</td><td>{row['frames']:,}</td>"
                   f"<td>{row['lost']:,}</td></tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def page(network, runs, rows, loss):
    timelines = "".join(f"<div>{_svg(timeline(network, run))}</div>" for run in runs)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Thalweg: the same training, the same lossy network</title>
<style>{STYLE}</style></head><body>
<h1>The same training over the same lossy network</h1>
<p class="muted">Written by <code>make demo</code>. {len(network["hosts"])} ranks of PyTorch on this machine, each in a network
namespace; every packet goes through the switches below (<code>thalweg testbed</code>), which lose {html.escape(loss)} of all
packets between racks, at random.</p>
{_table(rows)}
<h2>The network</h2>{topology_svg(network, loss)}
<h2>Steps and accuracy</h2>
<div class="pair"><div>{_svg(distribution(runs))}</div><div>{_svg(accuracy(runs))}</div></div>
<h2>Flows and queues over time</h2>
<p class="muted">Counted every 50 ms at the ports of the switches, while the training lasted.</p>
<div class="pair">{timelines}</div>
</body></html>
"""
