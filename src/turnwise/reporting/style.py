"""The style sheet of report.html, for light and dark, wide and narrow screens."""

NUM_COLOURS = 6
"""Number of lines that can be told apart in a chart."""
NO_NETWORK = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: text that is not escaped by mistake can load nothing and run nothing; pictures are in the
page."""

STYLE = """
:root { color-scheme: light dark; --back: #fbfbf9; --card: #ffffff; --text: #22262b; --dim: #68707a; --rule: #e3e4e0;
--accent: #1f6f54;
  --s1: #1f7a5a; --s2: #b4581c; --s3: #4561b8; --s4: #a23b72; --s5: #8a7a12; --s6: #2f8aa5;
  --good: #1f7a5a; --bad: #b03a2e; --prompt: #6f7680; --green: 34, 139, 94;
  --observation: #2b5aa8; --observation-back: #e8effb; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1c2024; --text: #dfe3e6; --dim: #98a1aa; --rule:
#30363c;
  --accent: #6cc7a4; --s1: #5cc49c; --s2: #e39a63; --s3: #8fa6ee; --s4: #e58ab9; --s5: #cfc05a; --s6: #74c7de;
  --good: #6cc7a4; --bad: #e98a7f; --prompt: #828b95;
  --green: 72, 190, 138;
  --observation: #a3c3f7; --observation-back: #1e2b42; } }
* { box-sizing: border-box; } body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.55 system-ui,
-apple-system, "Segoe UI", sans-serif; } main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 60px; } h1 {
font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 44px
0 10px; padding-top: 14px; border-top: 1px solid var(--rule); } h3 { font-size: 1rem; margin: 26px 0 4px; display: flex;
flex-wrap: wrap; gap: 10px; align-items: baseline; } h4 { font-size: .85rem; margin: 0 0 6px; color: var(--dim);
font-weight: 600; } p { margin: 8px 0; max-width: 78ch; } .dim, .note, .axis, .gold, .id { color: var(--dim); font-size:
.85rem; } .id, pre, .tokens { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; } .lead {
font-size: 1.12rem; } .scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem;
font-variant-numeric: tabular-nums; } th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid
var(--rule); white-space: nowrap; } th:first-child, td:first-child { text-align: left; padding-left: 0; } th { color:
var(--dim); font-weight: 600; vertical-align: bottom; white-space: normal; } tr.all td { font-weight: 650; } td small {
color: var(--dim); font-weight: 400; } .charts { display: grid; grid-template-columns: repeat(auto-fill,
minmax(min(100%, 320px), 1fr)); gap: 16px; } .chart { margin: 0; background: var(--card); border: 1px solid var(--rule);
border-radius: 8px; padding: 12px 14px 8px; } .chart svg { width: 100%; height: auto; display: block; } .chart text {
fill: var(--dim); font-size: 11px; } .chart .axis { text-align: center; font-size: .75rem; } figcaption { font-size:
.92rem; } figcaption .note { display: block; font-size: .78rem; line-height: 1.35; } .legend { font-size: .8rem; margin:
4px 0; display: flex; flex-wrap: wrap; gap: 2px 14px; color: var(--dim); } .legend b { color: var(--text); font-weight:
600; } .key::before { content: ""; display: inline-block; width: 14px; height: 3px; vertical-align: middle;
  margin-right: 5px; border-radius: 2px; background: var(--series); }
.s1, .k1 { --series: var(--s1); } .s2, .k2 { --series: var(--s2); } .s3, .k3 { --series: var(--s3); }
.s4, .k4 { --series: var(--s4); } .s5, .k5 { --series: var(--s5); } .s6, .k6 { --series: var(--s6); }
.grid { stroke: var(--rule); stroke-width: 1; } .dot { fill: var(--series); } .line { fill: none; stroke: var(--series);
stroke-width: 1.8; stroke-linejoin: round; } .faint { stroke-width: 1; stroke-dasharray: 2 4; opacity: .7; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); } .kind { font-size: .8rem; font-weight: 500;
border: 1px solid var(--rule); border-radius: 10px; padding: 0 8px; } .pair { display: grid; grid-template-columns:
repeat(2, minmax(0, 1fr)); gap: 14px; } @media (max-width: 760px) { .pair { grid-template-columns: minmax(0, 1fr); }
main { padding: 18px 14px 40px; } } .side { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
padding: 12px 14px; } .facts { list-style: none; margin: 0 0 8px; padding: 0; display: flex; flex-wrap: wrap;
  gap: 2px 12px; font-size: .78rem; color: var(--dim); }
.tokens { font-size: .8rem; line-height: 1.6; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 48em;
overflow-y: auto; } .prompt { color: var(--prompt); } .observation { color: var(--observation); background:
var(--observation-back); border-radius: 3px; } .sampled i { font-style: normal; border-radius: 2px; } .p0 { background:
rgba(var(--green), .1); } .p1 { background: rgba(var(--green), .18); } .p2 { background: rgba(var(--green), .27); } .p3
{ background: rgba(var(--green), .37); } .p4 { background: rgba(var(--green), .48); } .branch { display: block; color:
var(--dim); border-top: 1px dashed var(--rule); margin-top: 6px; } .tokenkeys { display: flex; flex-wrap: wrap; gap: 4px
18px; font-size: .85rem; } .tokenkeys i { padding: 0 5px; } .bar { display: flex; height: 16px; border-radius: 4px;
overflow: hidden; margin: 10px 0 6px; max-width: 640px; background: var(--rule); } .bar span { background:
var(--series); } .bar span::before { content: none; } details {
margin-top: 10px; } summary { cursor: pointer; } pre { font-size: .8rem; overflow-x: auto; background: var(--card);
border: 1px solid var(--rule); border-radius: 8px; padding: 12px; }
.tokens img { display: block; max-width: 100%; height: auto; margin: 4px 0; border: 1px solid var(--rule); }
.tokens img.crisp { image-rendering: pixelated; } .lost { border: 1px dashed var(--bad); padding: 0 4px; }
.stack { display: grid; gap: 14px; } h5 { font-size: .85rem; margin: 6px 0; }
.roles h5 { display: none; } .roles.several h5 { display: block; color: var(--series); }
.roles { display: grid; grid-template-columns: repeat(var(--roles), minmax(0, 1fr)); gap: 14px; }
@media (max-width: 760px) { .roles { grid-template-columns: minmax(0, 1fr); } }
.talk { display: block; color: var(--dim); font-weight: 600; border-top: 1px solid var(--rule); margin-top: 8px; }
.forgotten { opacity: .45; filter: grayscale(1); }
.memory { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 12px; margin: 0; font-size: .8rem;
font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.wrong { display: block; color: var(--bad); font-weight: 600; } td a { color: inherit; }
.memory dt { color: var(--dim); } .memory dd { margin: 0; overflow-wrap: anywhere; } """
