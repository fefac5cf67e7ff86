//! An HTML page that can be mailed: one file without a script, and nothing from a network. It is dark where
//! the reader's system is, and prints black on white.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What all pages have in common.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #222; --quiet: #555; --back: #fff; --shade: #f4f4f1; --line: #ccc;
  --cpu: #e8b45a; --io: #6fa8dc; --temp: #c27ba0; --wait: #93c47d; --lock: #e06666; --client: #a9a9a9 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e0; --quiet: #b4b4ae; --back: #1b1c1e; --shade: #28292c; --line: #555 } }
@media print {
  :root { color-scheme: light; --text: #000; --quiet: #333; --back: #fff; --shade: #fff; --line: #999 }
  body { margin: 0; font-size: 11px; print-color-adjust: exact; -webkit-print-color-adjust: exact }
  h2 { break-after: avoid } tr, .finding { break-inside: avoid } }
* { box-sizing: border-box }
body { font: 14px/1.4 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: var(--text); background: var(--back) }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
pre { padding: .6em; background: var(--shade); font: 12px/1.35 monospace }
dl { display: grid; grid-template-columns: max-content auto; gap: .1em 1em } dt { color: var(--quiet) } dd { margin: 0 }
table { border-collapse: collapse } td, th { padding: .15em 1em .15em 0; text-align: left; vertical-align: top }
th { border-bottom: 1px solid var(--line) } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.wide { overflow-x: auto } dd, p { overflow-wrap: anywhere }
.key { display: inline-block; width: 1em; height: 1em; margin: 0 .4em 0 1em; vertical-align: -.1em }
";

/// Returns the page. `style` is what only pages of this kind have. All texts of `body` are escaped, as maud
/// does.
pub(crate) fn page(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { main { h1 { (title) } (body) } }
        }
    };
    page.into_string()
}
