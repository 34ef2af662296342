//! Plain HTML with inline pictures and styles: text escaped, pictures with words, nothing from elsewhere.

use std::fmt::Write;

use super::canvas::{FRAME, GRID, INK, PALETTE, PAPER};

/// `text` with the letters that HTML reads replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters have no place in HTML.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A picture with the words that stand for it.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The picture, as the plots of this module draw it.
    pub svg: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What there is to see, for those who cannot see it; shown below it.
    pub caption: String,
}

/// A table of text with a heading row; the first cell of every row names it.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    /// What it is about.
    pub caption: String,
    /// Column headings; none for a table of names and values.
    pub header: Vec<String>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

/// A piece of a section.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Piece {
    /// A heading within the section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A list.
    List(Vec<String>),
    /// A picture of full width.
    Picture(Picture),
    /// Small pictures side by side, as many as fit.
    Gallery(Vec<Picture>),
    /// A table.
    Table(TextTable),
    /// Text as it is typed, say a command.
    Code(String),
}

/// A heading and what stands below it.
#[derive(Clone, Debug)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What stands below it, in order.
    pub blocks: Vec<Piece>,
}

/// The text of a page while it grows.
#[derive(Default)]
pub(super) struct Html {
    pub(super) text: String,
    pictures: usize,
    sections: usize,
    tables: usize,
}

impl Html {
    /// Adds markup as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    /// Adds an element `tag` around escaped `text`.
    pub(super) fn element(&mut self, tag: &str, text: &str) {
        let _ = writeln!(self.text, "<{tag}>{}</{tag}>", escaped(text));
    }

    /// The head of a page, and its heading.
    pub(super) fn open(&mut self, title: &str) {
        self.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        self.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        self.raw(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; img-src data:\">\n",
        );
        self.raw(&format!("<meta name=\"generator\" content=\"brenier {}\">\n", env!("CARGO_PKG_VERSION")));
        self.raw("<link rel=\"icon\" href=\"data:,\">\n");
        self.element("title", title);
        self.raw(&format!("<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"));
        self.element("h1", title);
    }

    /// The foot of a page, with a sentence in it.
    pub(super) fn close(&mut self, sentence: &str) {
        self.raw("<footer>\n");
        self.element("p", &format!("Made by brenier {}. {sentence}", env!("CARGO_PKG_VERSION")));
        self.raw("</footer>\n</body>\n</html>\n");
    }

    pub(super) fn section(&mut self, section: &Section) {
        self.sections += 1;
        let id = format!("s{}", self.sections);
        let _ = writeln!(self.text, "<section aria-labelledby=\"{id}\">");
        let _ = writeln!(self.text, "<h2 id=\"{id}\">{}</h2>", escaped(&section.title));
        section.blocks.iter().for_each(|block| self.block(block));
        self.raw("</section>\n");
    }

    fn block(&mut self, block: &Piece) {
        match block {
            Piece::Heading(text) => self.element("h3", text),
            Piece::Text(text) => self.element("p", text),
            Piece::List(items) => {
                self.raw("<ul>\n");
                items.iter().for_each(|item| self.element("li", item));
                self.raw("</ul>\n");
            }
            Piece::Picture(picture) => self.picture(picture),
            Piece::Gallery(pictures) => {
                self.raw("<div class=\"gallery\">\n");
                pictures.iter().for_each(|picture| self.picture(picture));
                self.raw("</div>\n");
            }
            Piece::Table(table) => self.table(table),
            Piece::Code(text) => {
                let _ = writeln!(self.text, "<pre tabindex=\"0\"><code>{}</code></pre>", escaped(text));
            }
        }
    }

    fn picture(&mut self, picture: &Picture) {
        self.pictures += 1;
        let number = self.pictures;
        let _ = writeln!(
            self.text,
            "<figure>\n<div class=\"picture\" tabindex=\"0\">{}</div>\n<figcaption><b>{}.</b> {}</figcaption>\n</figure>",
            spoken(&picture.svg, number, &picture.title, &picture.caption),
            escaped(&picture.title),
            escaped(&picture.caption)
        );
    }

    pub(super) fn table(&mut self, table: &TextTable) {
        self.tables += 1;
        let id = format!("t{}", self.tables);
        let class = if table.header.is_empty() { " class=\"facts\"" } else { "" };
        // Before the part that scrolls, so that a narrow screen shows all of it.
        let _ = writeln!(self.text, "<p class=\"caption\" id=\"{id}\">{}</p>", escaped(&table.caption));
        let _ = writeln!(
            self.text,
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{id}\">\
             <table{class} aria-labelledby=\"{id}\">"
        );
        if !table.header.is_empty() {
            self.raw("<thead><tr>");
            for heading in &table.header {
                let _ = write!(self.text, "<th scope=\"col\">{}</th>", escaped(heading));
            }
            self.raw("</tr></thead>\n");
        }
        self.raw("<tbody>\n");
        for row in &table.rows {
            self.raw("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let cell = escaped(cell);
                let _ = match i {
                    0 => write!(self.text, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(self.text, "<td>{cell}</td>"),
                };
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody>\n</table></div>\n");
    }
}

/// A page of `sections` that needs no other file.
pub fn page(title: &str, sections: &[Section]) -> String {
    let mut html = Html::default();
    html.open(title);
    html.raw("</header>\n<main>\n");
    sections.iter().for_each(|section| html.section(section));
    html.raw("</main>\n");
    html.close("Figures are the same for the same seed, but for times.");
    html.text
}

/// The SVG for the page: it fills its figure, has a title and a description that screen readers tell, and takes its
/// colours from the page's, so that it reads on light and on dark.
fn spoken(svg: &str, number: usize, title: &str, description: &str) -> String {
    let (head, body) = svg.split_once('>').unwrap_or(("<svg", ""));
    let number_of = |name: &str| -> Option<f64> {
        let start = head.find(&format!(" {name}=\""))? + name.len() + 3;
        head[start..].split('"').next()?.parse().ok()
    };
    let (width, height) = (number_of("width").unwrap_or(400.0), number_of("height").unwrap_or(300.0));
    let view = head.split("viewBox=\"").nth(1).and_then(|rest| rest.split('"').next());
    let view = view.map_or_else(|| format!("0 0 {width} {height}"), str::to_owned);
    // Text of a wide picture on a narrow screen stays legible: the figure scrolls instead. On a wide one it grows to
    // the size of the text around it.
    let (least, most) = (0.8 * width, 1.3 * width);
    let head = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{}\" role=\"img\" \
         aria-labelledby=\"p{number}t p{number}d\" style=\"max-width:{most:.0}px;min-width:{least:.0}px\">\
         <title id=\"p{number}t\">{}</title><desc id=\"p{number}d\">{}</desc>",
        escaped(&view),
        escaped(title),
        escaped(description)
    );
    head + &themed(body)
}

/// Fixed colours replaced by the page's.
fn themed(svg: &str) -> String {
    let mut text = svg.to_owned();
    let names = [(INK, "ink".to_owned()), (FRAME, "frame".to_owned())]
        .into_iter()
        .chain([(GRID, "grid".to_owned()), (PAPER, "paper".to_owned())])
        .chain(PALETTE.iter().enumerate().map(|(i, &colour)| (colour, format!("c{i}"))));
    for (colour, name) in names {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        text = text.replace(&format!("\"{hex}\""), &format!("\"var(--{name},{hex})\""));
    }
    text
}

/// Colours in light and dark, one column of text, figures that scroll when they must, and a printed page.
const STYLE: &str = "
:root{color-scheme:light dark;--paper:#fff;--ink:#1e1e1e;--soft:#555;--frame:#6e6e6e;--grid:#e4e4e4;--rule:#cfcfcf;
--panel:#f5f5f2;--link:#00598c;--good:#0b6b3a;--care:#7d5200;--bad:#a3220f;--c0:#0072B2;--c1:#D55E00;--c2:#009E73;
--c3:#E69F00;--c4:#CC79A7;--c5:#56B4E9;--c6:#F0E442}
@media (prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e9e9e6;--soft:#b4b7bb;--frame:#9a9da1;--grid:#2c3035;
--rule:#41464c;--panel:#1e2125;--link:#7cc4f2;--good:#6fd29a;--care:#f0b94c;--bad:#ff8f7a;--c0:#58aee6;--c1:#f28b40;
--c2:#2fc79d;--c3:#f2bd45;--c4:#e0a3c6;--c5:#8ed1f5;--c6:#f4ea7a}}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#333;--frame:#6e6e6e;--grid:#e4e4e4;--rule:#bbb;
--panel:#fff;--link:#000;--good:#0b6b3a;--care:#7d5200;--bad:#a3220f;--c0:#0072B2;--c1:#D55E00;--c2:#009E73;
--c3:#E69F00;--c4:#CC79A7;--c5:#56B4E9;--c6:#F0E442}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,
'Helvetica Neue',Arial,sans-serif}
header,main,footer{max-width:62rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.3;margin:2.5rem 0 .75rem;padding-bottom:.25rem;border-bottom:1px solid var(--rule)}
h3{font-size:1.1rem;margin:1.75rem 0 .5rem}
p{margin:.5rem 0 1rem;max-width:46rem}
p,li,td,th,figcaption{overflow-wrap:anywhere}
.lead{color:var(--soft);margin-top:0}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;margin:1rem 0 0;font-size:.95rem}
a{color:var(--link)}
.verdict{border:1px solid var(--rule);border-left:.5rem solid var(--tone);background:var(--panel);
border-radius:.4rem;padding:1rem 1.25rem;margin:1.5rem 0}
.verdict h2{border:0;margin:0;padding:0;font-size:1.5rem;color:var(--tone)}
.verdict>p{font-size:1.08rem;margin:.35rem 0 .75rem}
.reasons{list-style:none;margin:0;padding:0}
.reasons li{display:grid;grid-template-columns:4.2rem 1fr;gap:.5rem;padding:.4rem 0;border-top:1px solid var(--rule)}
.reasons b{font-size:.85rem;text-transform:uppercase;letter-spacing:.03em;padding-top:.12rem}
.good{--tone:var(--good)}.note{--tone:var(--soft)}.care{--tone:var(--care)}.bad{--tone:var(--bad)}
.reasons b{color:var(--tone)}
figure{margin:1rem 0}
.picture{overflow-x:auto}
svg{display:block;width:100%;height:auto}
figcaption{font-size:.92rem;color:var(--soft);margin-top:.35rem;max-width:46rem}
figcaption b{color:var(--ink)}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));gap:.5rem 1.25rem}
.gallery figure{margin:.5rem 0}
.wide{overflow-x:auto;margin:0 0 1rem}
table{border-collapse:collapse;font-size:.93rem;font-variant-numeric:tabular-nums}
.caption{color:var(--soft);font-size:.95rem;margin:1.25rem 0 .35rem}
th,td{padding:.3rem .9rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
td{min-width:4.5rem;overflow-wrap:normal}
.facts td{overflow-wrap:anywhere}
th[scope=row]{font-weight:500;min-width:6rem;overflow-wrap:normal}
thead th{border-bottom:2px solid var(--frame);overflow-wrap:normal}
pre{background:var(--panel);border:1px solid var(--rule);border-radius:.4rem;padding:.75rem 1rem;overflow-x:auto;
font:.87rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{color:var(--soft);font-size:.9rem;padding-top:1.5rem;padding-bottom:3rem}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (max-width:30rem){.reasons li{grid-template-columns:1fr;gap:0}h1{font-size:1.4rem}}
@media print{body{font-size:10pt}header,main,footer{max-width:none;padding:0}nav{display:none}
h2,h3,.caption{break-after:avoid}figure,.verdict,tr{break-inside:avoid}.picture,.wide,pre{overflow:visible}
pre{white-space:pre-wrap}svg{min-width:0!important}.gallery{grid-template-columns:repeat(3,1fr)}a{text-decoration:none}}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<b a='1'>\"&\"\u{0}"), "&lt;b a=&#39;1&#39;&gt;&quot;&amp;&quot;\u{fffd}");
        let mut html = Html::default();
        html.section(&Section {
            title: "<h1>".to_owned(),
            blocks: vec![
                Piece::Heading("<script>".to_owned()),
                Piece::Text("</p><script>".to_owned()),
                Piece::List(vec!["<i>".to_owned()]),
                Piece::Code("</code>".to_owned()),
                Piece::Table(TextTable {
                    caption: "<".to_owned(),
                    header: vec!["<th>".to_owned()],
                    rows: vec![vec!["<td>".to_owned(), "</table>".to_owned()]],
                }),
                Piece::Picture(Picture {
                    svg: "<svg width=\"10\" height=\"5\" viewBox=\"0 0 10 5\"><path fill=\"#1E1E1E\"/></svg>"
                        .into(),
                    title: "</title><script>".to_owned(),
                    caption: "\"><script>".to_owned(),
                }),
            ],
        });
        assert!(!html.text.contains("<script"), "{}", html.text);
        assert!(html.text.contains("role=\"img\"") && html.text.contains("viewBox=\"0 0 10 5\""));
        assert!(html.text.contains("var(--ink,#1E1E1E)"));
        // Every element that was opened is closed.
        for tag in ["section", "p", "ul", "li", "pre", "code", "table", "figure", "svg", "div"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            let opened = html
                .text
                .match_indices(&open)
                .filter(|(at, _)| html.text[at + open.len()..].starts_with([' ', '>']));
            assert_eq!(opened.count(), html.text.matches(&close).count(), "{tag}");
        }
    }
}
