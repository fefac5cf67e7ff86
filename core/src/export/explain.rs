//! A plan as EXPLAIN (ANALYZE, BUFFERS, WAL) prints it: as text, JSON, YAML or XML, with PostgreSQL's own
//! words and order.
//!
//! `explained` is what is printed. `node` lists what is said of a node, `facts` what PostgreSQL knows of it,
//! `counts` its rows, times, blocks and WAL, `workers` what each parallel worker did. `text` prints that as
//! lines, `structured` as one of the other formats, whose syntax is in `writer`.

mod counts;
mod explained;
mod facts;
mod list;
mod node;
mod structured;
mod text;
mod value;
mod workers;
mod writer;

#[cfg(test)]
mod tests;

pub use explained::{ExplainFormat, Explained, Planned, Trigger};

/// Returns what EXPLAIN prints: a line each as text, else one document.
pub fn explain(explained: &Explained, format: ExplainFormat) -> Vec<String> {
    match format {
        ExplainFormat::Text => text::lines(explained),
        _ => vec![structured::document(explained, format)],
    }
}
