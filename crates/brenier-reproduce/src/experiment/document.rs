//! What an experiment has to show: text, tables and pictures that render themselves.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::report::{self, Picture, Section, TextTable};
use crate::{Error, Result};

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Align {
    /// As text is.
    Left,
    /// As numbers are.
    Right,
}

/// A table with a heading row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultTable {
    /// Column headings.
    pub header: Vec<String>,
    /// The columns' alignment; further columns are left-aligned.
    pub align: Vec<Align>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

impl ResultTable {
    /// A table without rows.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same with columns aligned as `letters` say: `l` or `r` for each.
    pub fn aligned(mut self, letters: &str) -> Self {
        self.align = letters.chars().map(|c| if c == 'r' { Align::Right } else { Align::Left }).collect();
        self
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(mut self, cells: impl IntoIterator<Item = S>) -> Self {
        self.push(cells);
        self
    }

    /// Adds a row.
    pub fn push<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn markdown(&self, text: &mut String) {
        line(text, &self.header);
        for column in 0..self.header.len() {
            text.push_str(match self.align.get(column) {
                Some(Align::Right) => "|---:",
                _ => "|---",
            });
        }
        text.push_str("|\n");
        self.rows.iter().for_each(|row| line(text, row));
    }
}

/// A line of cells; a bar or a line break in one of them does not end it.
fn line(text: &mut String, cells: &[String]) {
    for cell in cells {
        let cell = cell.replace('|', "\\|").replace(['\n', '\r'], " ");
        let space = if cell.is_empty() { "" } else { " " };
        let _ = write!(text, "| {cell}{space}");
    }
    text.push_str("|\n");
}

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A table.
    Table(ResultTable),
    /// A picture of the folder.
    Picture {
        /// Its file, without the ending.
        stem: String,
        /// What there is to see.
        caption: String,
    },
}

/// Text, tables and pictures in order, and the figures behind them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Document {
    /// The heading.
    pub title: String,
    /// What follows it.
    pub blocks: Vec<Block>,
    /// Sentences for whoever ran the experiment, such as that it is not complete.
    pub warnings: Vec<String>,
    /// What [`to_json`](Self::to_json) gives, where it is not the document itself.
    #[serde(skip)]
    figures: Option<Value>,
}

impl Document {
    /// A document without contents.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a paragraph.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.blocks.push(Block::Text(text.into()));
        self
    }

    /// Adds a table.
    pub fn table(mut self, table: ResultTable) -> Self {
        self.blocks.push(Block::Table(table));
        self
    }

    /// Adds a picture that [`Workbench::picture`](super::Workbench::picture) has written.
    pub fn picture(mut self, stem: impl Into<String>, caption: impl Into<String>) -> Self {
        self.blocks.push(Block::Picture { stem: stem.into(), caption: caption.into() });
        self
    }

    /// Adds a sentence for whoever ran the experiment.
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// The figures, for programs that read them.
    pub fn figures(mut self, figures: &impl Serialize) -> Self {
        self.figures = Some(serde_json::to_value(figures).expect("figures are plain data"));
        self
    }

    /// All of it as Markdown; pictures are those beside it.
    pub fn to_markdown(&self) -> String {
        format!("# {}\n\n{}", self.title, self.rendered(true))
    }

    /// Text and tables alone, for a terminal.
    pub fn to_text(&self) -> String {
        self.rendered(false)
    }

    fn rendered(&self, pictures: bool) -> String {
        let mut text = String::new();
        for block in &self.blocks {
            if matches!(block, Block::Picture { .. }) && !pictures {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            match block {
                Block::Text(paragraph) => {
                    let _ = writeln!(text, "{paragraph}");
                }
                Block::Table(table) => table.markdown(&mut text),
                Block::Picture { stem, caption } => {
                    let _ = writeln!(text, "![{}]({stem}.svg)", caption.replace(['[', ']'], ""));
                }
            }
        }
        text
    }

    /// The figures as JSON, or the document where there are none.
    pub fn to_json(&self) -> String {
        let figures = self.figures.clone().map_or_else(|| serde_json::to_value(self), Ok);
        let text = figures.and_then(|figures| serde_json::to_string_pretty(&figures));
        text.expect("a document is plain data")
    }

    /// A page that needs no other file; the pictures are read from `folder`.
    pub fn to_html(&self, folder: &Path) -> Result<String> {
        let mut section = Section { title: "Results".to_owned(), blocks: Vec::new() };
        // The paragraph before a table is its caption.
        let mut caption = None;
        for block in &self.blocks {
            match block {
                Block::Text(text) => {
                    let before = caption.replace(text.clone());
                    section.blocks.extend(before.map(report::Piece::Text));
                }
                Block::Table(table) => section.blocks.push(report::Piece::Table(TextTable {
                    caption: caption.take().unwrap_or_default(),
                    header: table.header.clone(),
                    rows: table.rows.clone(),
                })),
                Block::Picture { stem, caption: about } => {
                    section.blocks.extend(caption.take().map(report::Piece::Text));
                    let path = folder.join(format!("{stem}.svg"));
                    let svg = std::fs::read_to_string(&path)
                        .map_err(|source| Error::io(&path, "read the picture", source))?;
                    let (title, caption) = about.split_once(": ").unwrap_or((about.as_str(), ""));
                    section.blocks.push(report::Piece::Picture(Picture {
                        svg,
                        title: title.to_owned(),
                        caption: caption.to_owned(),
                    }));
                }
            }
        }
        section.blocks.extend(caption.map(report::Piece::Text));
        Ok(report::page(&self.title, &[section]))
    }
}
