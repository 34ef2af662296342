//! Words that the verdict, the page and the command share.

/// The text with a capital at its beginning.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A p-value in a sentence, none of them printed as zero: `p = 0.012`, or `p < 0.001`.
pub fn probability(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }
}
