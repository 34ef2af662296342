//! The page a scientist can send to a colleague: one HTML file with the verdict, its reasons, pictures and tables.

use super::html::{Html, Picture, Piece, Section, TextTable, escaped};
use super::judged::{Interval, intervals, rank_histogram};
use super::{Curve, CurvePlot, PALETTE, PairPlot, PictureSize};
use crate::check::{Check, PredictiveRow, Severity, Trust, capital, probability, quantity_name};
use crate::diagnose::{Calibration, Quantity, RankCheck};
use crate::statistics::{ColumnSummary, Estimate};
use crate::transform::Support;
use crate::{Posterior, Result};

/// Columns of a pair plot, at most.
const PAIR_COLUMNS: usize = 8;
/// Lines of lists of columns and outputs.
const LISTED: usize = 24;
/// Small pictures of single parameters, at most.
const GALLERY: usize = 24;
/// Bins of rank histograms.
const BINS: usize = 20;
const SMALL: PictureSize = PictureSize { width: 250, height: 180 };

/// The posterior at one observation, as a page shows it.
#[derive(Clone, Debug, Default)]
pub struct ObservationView {
    /// What the observation is called.
    pub name: String,
    /// A sentence about it; empty for none.
    pub note: String,
    /// The observed values, in the order of the model's given columns.
    pub given: Vec<f64>,
    /// Draws in the user's units, row by row.
    pub draws: Vec<f64>,
    /// The point of highest density in the map's coordinates (`Units::Standardised`), where it was looked for.
    pub mode: Option<Vec<f64>>,
    /// The parameters the observation was made with, where they are known.
    pub truth: Option<Vec<f64>>,
    /// Where observed values fall among simulations from the posterior.
    pub predictive: Option<PredictiveRow>,
    /// Further pictures.
    pub pictures: Vec<Picture>,
}

/// A page about one model.
///
/// What a caller adds, an introduction, observations, sections of its own, stands beside what the check found. All
/// text is escaped; the page loads nothing and runs no script.
pub struct ReportPage<'a> {
    title: String,
    model: &'a Posterior,
    check: &'a Check,
    introduction: Vec<String>,
    observations: Vec<ObservationView>,
    sections: Vec<Section>,
    commands: Vec<String>,
    sources: Vec<(String, String)>,
}

impl<'a> ReportPage<'a> {
    /// A page called `title` on what `check` found about `model`.
    pub fn new(title: impl Into<String>, model: &'a Posterior, check: &'a Check) -> Self {
        Self {
            title: title.into(),
            model,
            check,
            introduction: Vec::new(),
            observations: Vec::new(),
            sections: Vec::new(),
            commands: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Adds a paragraph below the title.
    pub fn introduction(mut self, paragraph: impl Into<String>) -> Self {
        self.introduction.push(paragraph.into());
        self
    }

    /// Shows the posterior at an observation.
    pub fn observation(mut self, view: ObservationView) -> Self {
        self.observations.push(view);
        self
    }

    /// Adds a section after the observations.
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Adds a command to those that make the page again.
    pub fn command(mut self, line: impl Into<String>) -> Self {
        self.commands.push(line.into());
        self
    }

    /// Names a file that the page was made from.
    pub fn source(mut self, what: impl Into<String>, name: impl Into<String>) -> Self {
        self.sources.push((what.into(), name.into()));
        self
    }

    /// The page as HTML text.
    pub fn to_html(&self) -> Result<String> {
        let mut sections = vec![self.learned()];
        if !self.observations.is_empty() {
            sections.push(self.posteriors()?);
        }
        sections.extend(self.sections.iter().cloned());
        sections.push(self.calibration()?);
        sections.extend(self.predictives());
        sections.push(self.map());
        sections.push(self.learning()?);
        sections.push(self.settings());
        let mut html = Html::default();
        html.open(&self.title);
        html.raw(&format!("<p class=\"lead\">{}</p>\n", escaped(&self.lead())));
        html.raw("<nav aria-label=\"Sections\"><ul>");
        for (i, section) in sections.iter().enumerate() {
            html.raw(&format!("<li><a href=\"#s{}\">{}</a></li>", i + 1, escaped(&section.title)));
        }
        html.raw("</ul></nav>\n</header>\n<main>\n");
        self.verdict(&mut html);
        self.introduction.iter().for_each(|paragraph| html.element("p", paragraph));
        sections.iter().for_each(|section| html.section(section));
        html.raw("</main>\n");
        html.close("Tests are corrected for their number; figures are the same for the same seed.");
        Ok(html.text)
    }

    fn lead(&self) -> String {
        let subject = &self.check.subject;
        let method = with_article(self.method());
        let held_out = self.check.held_out.rows;
        match subject.given.len() {
            0 => format!(
                "{method} of {}, trained on {} rows and checked with {held_out} held-out rows.",
                count(subject.target.len(), "quantity", "quantities"),
                subject.train_rows
            ),
            given => format!(
                "{method} of {} given {}, trained on {} pairs and checked with {held_out} held-out pairs.",
                count(subject.target.len(), "parameter", "parameters"),
                count(given, "observed value", "observed values"),
                subject.train_rows
            ),
        }
    }

    /// The method's title; what is given nothing is not conditional.
    fn method(&self) -> &'static str {
        let title = self.check.subject.method.title();
        match self.model.given_names().is_empty() {
            true => title.strip_prefix("conditional ").unwrap_or(title),
            false => title,
        }
    }

    /// The verdict and its reasons, before everything else.
    fn verdict(&self, html: &mut Html) {
        let verdict = &self.check.verdict;
        let tone = match verdict.trust {
            Trust::Trustworthy => "good",
            Trust::Care => "care",
            Trust::Untrustworthy => "bad",
        };
        html.raw(&format!("<section class=\"verdict {tone}\" aria-labelledby=\"verdict\">\n"));
        let words = verdict.trust.to_string();
        let words = words[..1].to_uppercase() + &words[1..];
        html.raw(&format!("<h2 id=\"verdict\">{}</h2>\n", escaped(&words)));
        html.element("p", &verdict.headline);
        html.raw("<ul class=\"reasons\">\n");
        for finding in &verdict.findings {
            let (tone, word) = match finding.severity {
                Severity::Good => ("good", "Fine"),
                Severity::Care => ("care", "Care"),
                Severity::Bad => ("bad", "Fault"),
                // Note, and what is newer than this list.
                _ => ("note", "Note"),
            };
            let text = escaped(&capital(&finding.text));
            html.raw(&format!("<li class=\"{tone}\"><b>{word}</b> <span>{text}</span></li>\n"));
        }
        html.raw("</ul>\n</section>\n");
    }

    fn learned(&self) -> Section {
        let subject = &self.check.subject;
        let mut rows: Vec<Vec<String>> = self
            .model
            .description()
            .into_iter()
            .map(|(heading, text)| row(&capital(heading), text))
            .collect();
        let held_out = &self.check.held_out;
        rows.push(row("Held out", format!("{} rows, {} drawn at", held_out.rows, held_out.pairs)));
        rows.push(row("Held-out SHA-256", held_out.sha256.clone()));
        rows.extend(self.sources.iter().map(|(what, name)| row(what, name.clone())));
        let likelihood = &self.check.likelihood;
        let figures = |name: &str, scored: &crate::check::Scored| {
            let text = |estimate: Estimate| {
                let median = estimate.carrier.map(|_| format!(" (median {:.4})", estimate.median));
                format!("{:.4} ± {:.4}{}", estimate.mean, estimate.standard_error, median.unwrap_or_default())
            };
            vec![name.to_owned(), text(scored.standardised), text(scored.user)]
        };
        let (mut scores, target) =
            (Vec::new(), if subject.joint { "target given the rest" } else { "held-out rows" });
        scores.push(figures(target, &likelihood.target));
        if let Some(given) = &likelihood.given {
            scores.push(figures("given columns alone", given));
        }
        if let Some(joint) = &likelihood.joint {
            scores.push(figures("all columns", joint));
        }
        let dash = || "–".to_owned();
        scores.push(vec![
            "validation rows in training".to_owned(),
            format!("{:.4}", likelihood.validation),
            dash(),
        ]);
        scores.push(vec![
            match subject.given.is_empty() {
                true => "a Gaussian".to_owned(),
                false => likelihood.baseline_name().to_owned(),
            },
            format!("{:.4}", likelihood.baseline),
            dash(),
        ]);
        Section {
            title: "The model and its data".to_owned(),
            blocks: vec![
                Piece::Table(TextTable { caption: "The model".to_owned(), header: Vec::new(), rows }),
                Piece::Table(TextTable {
                    caption: "Mean negative log-likelihood with its standard error; lower is better"
                        .to_owned(),
                    header: vec![
                        "".to_owned(),
                        "standardised".to_owned(),
                        "in the columns' units".to_owned(),
                    ],
                    rows: scores,
                }),
            ],
        }
    }

    fn posteriors(&self) -> Result<Section> {
        let mut blocks = Vec::new();
        for view in &self.observations {
            blocks.push(Piece::Heading(capital(&view.name)));
            if !view.note.is_empty() {
                blocks.push(Piece::Text(view.note.clone()));
            }
            blocks.extend(self.place_of(view)?.map(Piece::Text));
            blocks.push(Piece::Picture(self.pair_plot(view)?));
            blocks.push(Piece::Table(self.summaries(view)?));
            if let Some(row) = &view.predictive {
                blocks.push(Piece::Picture(predictive_picture(self.model.given_names(), row, &view.name)?));
            }
            blocks.extend(view.pictures.iter().cloned().map(Piece::Picture));
        }
        let title = match (self.model.given_names().is_empty(), self.observations.len()) {
            (true, _) => "Draws from the map",
            (false, 1) => "The posterior at the observation",
            (false, _) => "Posteriors at chosen observations",
        };
        Ok(Section { title: title.to_owned(), blocks })
    }

    /// How far out the observation lies.
    fn place_of(&self, view: &ObservationView) -> Result<Option<String>> {
        if view.given.is_empty() || self.model.given_names().is_empty() {
            return Ok(None);
        }
        let Some(distances) = self.model.distances(&view.given, 1)? else { return Ok(None) };
        Ok(distances.first().map(|distance| {
            let part = (100.0 * distance.percentile).clamp(0.01, 99.99);
            if distance.is_extreme() {
                format!(
                    "This observation lies outside the training distribution, farther out than {part:.2} % of it \
                     ({} is {:.1} standard deviations from its mean): what follows is \
                     extrapolation.",
                    distance.column,
                    distance.deviations.abs()
                )
            } else {
                format!("The observation lies within the training data ({part:.1} % of it lie less far out).")
            }
        }))
    }

    fn pair_plot(&self, view: &ObservationView) -> Result<Picture> {
        let names = self.model.target_names();
        let (n, shown) = (names.len(), names.len().min(PAIR_COLUMNS));
        let cut = |values: &[f64]| values[..shown].to_vec();
        let draws = view.draws.chunks_exact(n).flat_map(|row| &row[..shown]).copied().collect();
        let unconditional = self.model.given_names().is_empty();
        let label = if unconditional { "draws" } else { "posterior draws" };
        let mut plot = PairPlot::new(&names[..shown]).layer(label, draws);
        for (j, support) in self.model.info().target_transform.supports().take(shown).enumerate() {
            if let Support::Interval { low, high } | Support::LogInterval { low, high } = support {
                plot = plot.support(j, low, high);
            }
        }
        // Positive parameters are read on logarithmic axes.
        let supports = self.model.info().target_transform.supports().take(shown).enumerate();
        let log: Vec<usize> = supports
            .filter(|(_, support)| matches!(support, Support::Log | Support::LogInterval { .. }))
            .map(|(j, _)| j)
            .collect();
        let truth_fits = |truth: &Vec<f64>| truth.len() == n && log.iter().all(|&j| truth[j] > 0.0);
        plot = plot.log(log.iter().copied());
        if let Some(truth) = view.truth.as_ref().filter(|truth| truth_fits(truth)) {
            plot = plot.truth(cut(truth));
        }
        if let Some(mode) = &view.mode {
            plot = plot.mode(cut(mode));
        }
        let side = (180 + 120 * shown as u32).clamp(320, 900);
        let of = match unconditional {
            true => view.name.clone(),
            false => format!("the posterior at {}", view.name),
        };
        let (truth, mode) = (view.truth.is_some(), view.mode.is_some());
        let mut caption = match shown {
            1 => format!("Density of draws from {of}"),
            _ => {
                format!("Draws from {of}: marginal densities on the diagonal, 50 % and 90 % regions below it")
            }
        };
        if truth {
            caption.push_str(if shown == 1 {
                "; the full line is the truth"
            } else {
                "; the cross is the truth"
            });
        }
        if mode {
            let mark = if shown == 1 { "; the dashed line" } else { "; the diamond" };
            caption.push_str(&format!("{mark} is the point of highest density{}", self.mode_scale()));
        }
        if shown < n {
            caption.push_str(&format!("; the first {shown} of {n} columns"));
        }
        caption.push('.');
        let size = PictureSize { width: side, height: if shown == 1 { 240 } else { side } };
        Ok(Picture {
            svg: plot.to_svg(size)?,
            title: if unconditional { capital(&view.name) } else { format!("Posterior at {}", view.name) },
            caption,
        })
    }

    /// On which scale the mode is the highest point, which it is not on others; nothing where there is but one.
    fn mode_scale(&self) -> String {
        let supports = || self.model.info().target_transform.supports();
        let log = supports().any(|support| matches!(support, Support::Log));
        let bounded = supports().any(|s| matches!(s, Support::Interval { .. } | Support::LogInterval { .. }));
        let scales = [
            log.then_some("logarithms of positive columns"),
            bounded.then_some("bounded columns stretched to the whole line"),
        ];
        match scales.into_iter().flatten().collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            scales => format!(" on the map's scale ({scales})"),
        }
    }

    fn summaries(&self, view: &ObservationView) -> Result<TextTable> {
        let names = self.model.target_names();
        let n = names.len();
        let mut header: Vec<String> = ["", "mean", "sd", "5 %", "median", "95 %"].map(str::to_owned).into();
        let mode = if self.mode_scale().is_empty() { "MAP" } else { "MAP on the map's scale" };
        header.extend(view.mode.as_ref().map(|_| mode.to_owned()));
        header.extend(view.truth.as_ref().map(|_| "truth".to_owned()));
        let rows = names.iter().enumerate().map(|(j, name)| {
            let mut column: Vec<f64> = view.draws.iter().skip(j).step_by(n).copied().collect();
            let own = ColumnSummary::of(&mut column)?;
            let [low, _, median, _, high] = own.quantiles;
            let mut cells = vec![name.clone()];
            let marks = view.mode.iter().chain(&view.truth).filter_map(|point| point.get(j).copied());
            let values = [own.mean, own.sd, low, median, high].into_iter().chain(marks);
            cells.extend(values.map(|value| figure_beside(value, own.sd)));
            Ok(cells)
        });
        Ok(TextTable {
            caption: match self.model.given_names().is_empty() {
                true => format!("Summary of {} draws", view.draws.len() / n),
                false => format!("Summary of {} draws at {}", view.draws.len() / n, view.name),
            },
            header,
            rows: rows.collect::<Result<_>>()?,
        })
    }

    fn calibration(&self) -> Result<Section> {
        let subject = &self.check.subject;
        let mut blocks = vec![Piece::Text(
            "If the posterior is right, the truth of a held-out pair is one more draw from it: its rank among the draws is \
             uniform, and a region of probability p holds it in a part p of the pairs. The shaded bands are where curves of \
             a right posterior stay, as a whole, with the stated probability."
                .to_owned(),
        )];
        calibration_blocks(&self.check.calibration, &subject.target, &mut blocks)?;
        if let Some(marginal) = &self.check.marginal_calibration {
            blocks.push(Piece::Text("The same for the map of the given columns alone:".to_owned()));
            calibration_blocks(marginal, &subject.given, &mut blocks)?;
        }
        Ok(Section { title: "Calibration".to_owned(), blocks })
    }

    fn predictives(&self) -> Option<Section> {
        let predictive = self.check.predictive.as_ref()?;
        let rows = predictive.outputs.iter().map(|output| {
            vec![
                output.name.clone(),
                format!("{:.1} %", 100.0 * output.extreme),
                p_value(output.adjusted_p_value),
            ]
        });
        Some(Section {
            title: "Posterior predictive checks".to_owned(),
            blocks: vec![
                Piece::Text(format!(
                    "At {} held-out observations, {} parameters each were drawn from the posterior and simulated again. An \
                     observation has helped to draw its own parameters, so it lies nearer to the middle of its predictive \
                     than a fresh one would: few extremes say little, but more than 10 % of them speak against the \
                     posterior.",
                    predictive.observations, predictive.draws
                )),
                Piece::Table(TextTable {
                    caption: "Observations in the outermost 5 % of their predictive".to_owned(),
                    header: ["output", "part", "p, corrected"].map(str::to_owned).into(),
                    rows: rows.collect(),
                }),
            ],
        })
    }

    fn map(&self) -> Section {
        let own = &self.check.certificates;
        let spectrum = &own.spectrum;
        let mut rows = Vec::new();
        let what = if spectrum.bound.is_some() {
            "Eigenvalues of the Hessian"
        } else {
            "Singular values of the Jacobian"
        };
        rows.push(row(
            what,
            format!(
                "{} to {} over {} pairs; condition at most {}",
                figure(spectrum.smallest),
                figure(spectrum.largest),
                spectrum.rows,
                figure(spectrum.condition)
            ),
        ));
        if let Some(bound) = spectrum.bound {
            let text = format!("{}: positive, so the map is one to one for every y", figure(bound));
            rows.push(row("Lower bound for all x and y", text));
        }
        if let Some(error) = spectrum.log_det_error {
            rows.push(row(
                "Log-determinant against differences",
                format!("off by at most {}", figure(error)),
            ));
        }
        let inversions = &own.inversions;
        rows.push(row(
            "Inversion",
            format!(
                "{} draws, largest residual {}, {:.1} {} each{}",
                inversions.draws,
                figure(inversions.worst_residual),
                inversions.mean_iterations,
                if inversions.tolerance.is_some() { "iterations" } else { "steps" },
                match (inversions.tolerance, inversions.unsolved) {
                    (Some(tolerance), 0) => format!("; all below {}", figure(tolerance)),
                    (_, 0) => String::new(),
                    (_, unsolved) => format!("; {unsolved} not solved"),
                }
            ),
        ));
        rows.push(row(
            "There and back, x → z → x",
            format!(
                "root mean square {}, worst {}",
                figure(own.round_trip.rms),
                figure(own.round_trip.worst)
            ),
        ));
        if let Some(paths) = &own.paths {
            rows.push(row(
                "Paths of the flow",
                format!(
                    "cost {:.3} times that of straight lines, Hamilton–Jacobi–Bellman residual {}; doubling {} steps moves \
                     draws by {} standard deviations",
                    paths.cost_ratio,
                    figure(paths.hjb),
                    paths.steps,
                    figure(paths.step_error)
                ),
            ));
        }
        for normalisation in &own.normalisation {
            rows.push(row(
                &format!("∫ π(x | y) dx at row {}", normalisation.row + 1),
                format!("{:.5} (grid: ±{})", normalisation.integral, figure(normalisation.resolution)),
            ));
        }
        if let Some(outliers) = &self.check.outliers {
            rows.push(row(
                "Outside the training data",
                format!(
                    "{} of {} observations ({:.1} expected)",
                    outliers.extreme,
                    outliers.rows,
                    outliers.expected * outliers.rows as f64
                ),
            ));
        }
        Section {
            title: "Checks of the map".to_owned(),
            blocks: vec![Piece::Table(TextTable {
                caption: "Certificates, in the standardised coordinates of the map".to_owned(),
                header: Vec::new(),
                rows,
            })],
        }
    }

    fn learning(&self) -> Result<Section> {
        let mut blocks = vec![Piece::Text(capital(&self.check.learning.reason) + ".")];
        let history = self.model.history();
        // The first steps, from far away, would flatten all that follows.
        let settled = &history[history.len() / 20..];
        if settled.len() >= 2 {
            let epochs: Vec<f64> = settled.iter().map(|p| p.epoch).collect();
            let train: Vec<f64> = settled.iter().map(|p| p.train_nll).collect();
            let valid: Vec<f64> = settled.iter().map(|p| p.valid_nll).collect();
            let mut sorted: Vec<f64> =
                train.iter().chain(&valid).copied().filter(|value| value.is_finite()).collect();
            sorted.sort_by(f64::total_cmp);
            if let (Some(&low), true) = (sorted.first(), sorted.len() > 1) {
                let high = sorted[(0.97 * (sorted.len() - 1) as f64) as usize];
                let margin = 0.05 * (high - low).max(1e-6);
                let label = match self.check.subject.method.info().penalised {
                    false => "training rows",
                    true => "training loss, with penalties",
                };
                let plot = CurvePlot::new("epoch", "mean NLL, standardised")
                    .limits_y(low - margin, high + margin)
                    .curve(Curve::line(label, epochs.clone(), train).colour(PALETTE[1]))
                    .curve(Curve::line("validation rows", epochs, valid).colour(PALETTE[0]))
                    .horizontal("held-out rows", self.check.likelihood.target.standardised.mean);
                blocks.push(Piece::Picture(Picture {
                    svg: plot.to_svg(PictureSize { width: 560, height: 300 })?,
                    title: "Training".to_owned(),
                    caption: format!(
                        "Losses while training, {} validations; the model holds the weights of step {}.",
                        history.len(),
                        self.check.learning.best_step
                    ),
                }));
            }
        }
        if !self.check.members.is_empty() {
            let rows = self.check.members.iter().map(|member| {
                vec![
                    member.name.clone(),
                    member.seed.to_string(),
                    format!(
                        "{:+.4} ± {:.4}",
                        member.nll_difference.mean, member.nll_difference.standard_error
                    ),
                    format!("{:.3} ({:.3} by chance)", member.distance, member.chance_distance),
                    format!("{:.3}", member.c2st),
                ]
            });
            blocks.push(Piece::Table(TextTable {
                caption: "Other fits of the same problem: NLL minus that of this model, distance of draws in posterior \
                          standard deviations, and how well a classifier tells them apart (0.5: not at all)"
                    .to_owned(),
                header: ["model", "seed", "held-out NLL", "distance", "C2ST"].map(str::to_owned).into(),
                rows: rows.collect(),
            }));
        }
        Ok(Section { title: "Learning".to_owned(), blocks })
    }

    fn settings(&self) -> Section {
        let mut blocks = Vec::new();
        if !self.commands.is_empty() {
            blocks.push(Piece::Text("Commands that make the model and this page again:".to_owned()));
            blocks.push(Piece::Code(self.commands.join("\n")));
        }
        let text = |value: Option<String>| value.unwrap_or_default().trim().to_owned();
        blocks.push(Piece::Text("Settings of the fit, as a settings file:".to_owned()));
        blocks.push(Piece::Code(text(toml::to_string(&self.model.info().settings).ok())));
        blocks.push(Piece::Text("Settings of the check:".to_owned()));
        blocks.push(Piece::Code(text(toml::to_string(&self.check.settings).ok())));
        Section { title: "How to reproduce".to_owned(), blocks }
    }
}

fn calibration_blocks(found: &Calibration, names: &[String], blocks: &mut Vec<Piece>) -> Result<()> {
    let rows = found.checks.iter().map(|check| {
        let fine = check.adjusted_p_value > found.level;
        vec![
            quantity_name(check.quantity, names),
            format!("{:.1} %", 100.0 * check.coverage(0.5)),
            format!("{:.1} %", 100.0 * check.coverage(0.9)),
            format!("{:.3}", check.deviation()),
            p_value(check.adjusted_p_value),
            if fine { "fine" } else { check.reading() }.to_owned(),
        ]
    });
    blocks.push(Piece::Table(TextTable {
        caption: format!(
            "{} pairs with {} draws each: how often regions of 50 % and 90 % hold the truth, the largest deviation of the \
             ranks' distribution, and the test's p-value corrected for all checks",
            found.pairs, found.draws
        ),
        header: ["check", "50 %", "90 %", "max |F(z) − z|", "p, corrected", "reading"].map(str::to_owned).into(),
        rows: rows.collect(),
    }));
    blocks.push(Piece::Picture(coverage(found)?));
    let parameters: Vec<&RankCheck> =
        found.checks.iter().filter(|check| matches!(check.quantity, Quantity::Parameter(_))).collect();
    if parameters.len() > GALLERY {
        let text =
            format!("The first {GALLERY} of {} columns are shown; the table has all.", parameters.len());
        blocks.push(Piece::Text(text));
    }
    let shown = &parameters[..parameters.len().min(GALLERY)];
    let level = 100.0 * (1.0 - found.level);
    let mut curves = Vec::with_capacity(shown.len());
    let mut histograms = Vec::with_capacity(shown.len());
    for check in shown {
        let name = quantity_name(check.quantity, names);
        let verdict =
            if check.adjusted_p_value > found.level { "no deviation found" } else { check.reading() };
        curves.push(Picture {
            svg: difference(found, check)?,
            title: name.clone(),
            caption: format!(
                "F(z) − z of the ranks with its {level:.0} % band: {verdict}, {}.",
                probability(check.adjusted_p_value)
            ),
        });
        let histogram = check.ranks.histogram(BINS, found.level);
        let outside = (0..histogram.counts.len())
            .filter(|&i| !(histogram.low[i]..=histogram.high[i]).contains(&histogram.counts[i]))
            .count();
        histograms.push(Picture {
            svg: rank_histogram(&histogram, SMALL)?,
            title: format!("{name}, histogram"),
            caption: match outside {
                0 => format!("All {} bars end inside the {level:.0} % band.", histogram.counts.len()),
                outside => {
                    format!("{outside} of {} bars end outside the {level:.0} % band.", histogram.counts.len())
                }
            },
        });
    }
    blocks.push(Piece::Gallery(curves));
    blocks.push(Piece::Gallery(histograms));
    Ok(())
}

/// Coverage of regions that no single parameter decides, beside the band.
fn coverage(found: &Calibration) -> Result<Picture> {
    let z = || found.points.clone();
    let band = |side: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        found.points.iter().zip(&found.band).map(|(z, band)| z + side(band)).collect()
    };
    let level = 100.0 * (1.0 - found.level);
    let mut plot =
        CurvePlot::new("nominal coverage", "observed coverage").limits_x(0.0, 1.0).limits_y(0.0, 1.0).curve(
            Curve::area(format!("{level:.0} % band"), z(), band(|b| b.0), band(|b| b.1))
                .colour(super::canvas::FRAME),
        );
    let mut told = Vec::new();
    for check in &found.checks {
        let (label, colour) = match check.quantity {
            Quantity::Density => ("highest-density regions", PALETTE[0]),
            Quantity::Tarp => ("TARP", PALETTE[1]),
            Quantity::Predicted => ("TARP at predicted points", PALETTE[2]),
            // Parameters have pictures of their own.
            _ => continue,
        };
        let observed: Vec<f64> = found.points.iter().zip(&check.difference).map(|(z, d)| z + d).collect();
        plot = plot.curve(Curve::line(label, z(), observed).colour(colour));
        told.push(format!("{label}: off by {:.1} points at most", 100.0 * check.deviation()));
    }
    Ok(Picture {
        svg: plot.to_svg(PictureSize { width: 420, height: 360 })?,
        title: "Expected coverage".to_owned(),
        caption: format!(
            "{}. A right posterior stays in the band around the diagonal.",
            capital(&told.join("; "))
        ),
    })
}

/// F(z) − z of one check over its band.
fn difference(found: &Calibration, check: &RankCheck) -> Result<String> {
    let side = |of: fn(&(f64, f64)) -> f64| found.band.iter().map(of).collect::<Vec<f64>>();
    CurvePlot::new("z", "F(z) − z")
        .limits_x(0.0, 1.0)
        .curve(
            Curve::area("", found.points.clone(), side(|b| b.0), side(|b| b.1)).colour(super::canvas::FRAME),
        )
        .curve(Curve::line("", found.points.clone(), check.difference.clone()).colour(PALETTE[0]))
        .to_svg(SMALL)
}

/// Where the observed values fall in their predictives, each in units of its own spread.
pub fn predictive_picture(names: &[String], row: &PredictiveRow, at: &str) -> Result<Picture> {
    let rows: Vec<Interval> = names
        .iter()
        .zip(&row.quantiles)
        .zip(&row.observed)
        .take(LISTED)
        .map(|((name, quantiles), &observed)| {
            // 5 to 95 % of a Gaussian are 3.29 standard deviations.
            let spread = (quantiles[4] - quantiles[0]) / 3.29;
            let scale = if spread > 0.0 { spread } else { observed.abs().max(1e-300) };
            let part = |value: f64| ((value - quantiles[2]) / scale).clamp(-20.0, 20.0);
            Interval { name: name.clone(), quantiles: quantiles.map(part), observed: part(observed) }
        })
        .collect();
    let far: Vec<String> = names
        .iter()
        .zip(&row.p_values)
        .filter(|(_, p)| **p <= 0.05)
        .map(|(name, p)| format!("{name} ({})", probability(*p)))
        .collect();
    let caption = match far.is_empty() {
        true => "Simulations from the posterior: 5 to 95 % thin, 25 to 75 % thick; crosses are the observed values, all \
                 within the predictive."
            .to_owned(),
        false => format!(
            "Simulations from the posterior: 5 to 95 % thin, 25 to 75 % thick; crosses are the observed values. At the \
             edge: {}.",
            list(&far)
        ),
    };
    Ok(Picture {
        svg: intervals(&rows, "distance from the median, predictive standard deviations", 560)?,
        title: format!("Predictive at {at}"),
        caption,
    })
}

fn row(name: &str, value: String) -> Vec<String> {
    vec![name.to_owned(), value]
}

fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("one {one}") } else { format!("{number} {many}") }
}

/// Names with commas between them, cut when there are very many.
fn list(names: &[String]) -> String {
    if names.len() <= LISTED {
        return names.join(", ");
    }
    format!("{}, … ({} in all)", names[..LISTED].join(", "), names.len())
}

/// A p-value in a column of them.
fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

/// With the article that it is spoken with.
fn with_article(name: &str) -> String {
    let word = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    // Capitals are said letter by letter, and the names of some letters begin with a vowel.
    let spelled = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let vowels = if spelled { "AEFHILMNORSX" } else { "aeiouAEIOU" };
    let an = word.starts_with(|c| vowels.contains(c));
    format!("{} {name}", if an { "An" } else { "A" })
}

/// As many digits as show a hundredth of the spread `sd` that the value stands beside, at least four.
fn figure_beside(value: f64, sd: f64) -> String {
    let (order, finest) = (value.abs().log10().floor(), sd.log10().floor());
    let digits = order - finest + 3.0;
    if !(4.5..=17.0).contains(&digits) {
        return figure(value);
    }
    let before = order + 1.0;
    match (1e-3..1e6).contains(&value.abs()) || (before <= digits && before > 0.0) {
        true => format!("{value:.*}", (digits - before).max(0.0) as usize),
        false => format!("{value:.*e}", (digits - 1.0) as usize),
    }
}

/// Four significant digits, in powers of ten only where that is shorter.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = (3 - size.log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_their_spread_asks_for() {
        let beside = |value: f64, sd: f64| figure_beside(value, sd);
        assert_eq!(beside(1_700_000_042.25, 100.0), "1700000042");
        assert_eq!(beside(1_700_000_042.25, 0.5), "1700000042.250");
        assert_eq!(beside(100.0, 100.0), "100.0");
        assert_eq!(beside(0.512_345_6, 0.0003), "0.512346");
        assert_eq!(beside(-1.234_567e-9, 1e-12), "-1.23457e-9");
        assert_eq!(beside(1.234_567e12, 1e9), "1.23457e12");
        // Spreads as large as the values, none, and no numbers are as before.
        for (value, sd) in [(12.5, 20.0), (0.0, 1.0), (3.0, 0.0), (1.0, f64::NAN), (2.5e9, 1e9)] {
            assert_eq!(beside(value, sd), figure(value));
        }
    }

    #[test]
    fn articles_follow_the_sound() {
        assert_eq!(with_article("NPE"), "An NPE");
        assert_eq!(with_article("adaptive transport map"), "An adaptive transport map");
        assert_eq!(with_article("PCP-Map"), "A PCP-Map");
        assert_eq!(with_article("CP-Flow"), "A CP-Flow");
    }
}
