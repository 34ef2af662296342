//! Log densities of the rows of a table, and their mean.

use std::fmt::Write;

use brenier::data::Table;
use brenier::statistics::Estimate;
use brenier::{LogDensities, Posterior, StopToken};

use crate::failure::Failure;

/// Log densities of the rows of a table: of all columns together, and for a joint model of both factors.
pub(crate) struct Scores {
    /// log π(x | y), or log π(x, y) for a joint model.
    whole: LogDensities,
    /// log π(x | y) and log π(y) of a joint model.
    factors: Option<[LogDensities; 2]>,
}

/// Log densities of a table whose columns are the model's target and given columns, unless `stop` ends them.
pub(crate) fn score(model: &Posterior, table: &Table, stop: &StopToken) -> Result<Scores, Failure> {
    let n = model.target_names().len();
    let side = |from: usize, to: usize| -> Vec<f64> {
        table.iter().flat_map(|row| &row[from..to]).copied().collect()
    };
    let (target, given) = (side(0, n), side(n, table.columns()));
    // A value outside a support is a mistake of the table, which its row should be named for.
    model.check_target(&target)?;
    if model.marginal().is_none() {
        return Ok(Scores { whole: model.log_density_until(&target, &given, stop)?, factors: None });
    }
    let densities = model.log_density_joint_until(&target, &given, stop)?;
    Ok(Scores { whole: densities.joint(), factors: Some([densities.conditional, densities.marginal]) })
}

impl Scores {
    /// One row of log densities for each row that was scored.
    pub(crate) fn table(&self) -> Result<Table, Failure> {
        let mut columns =
            vec![("log_density", &self.whole.user), ("log_density_standardised", &self.whole.standardised)];
        if let Some([conditional, marginal]) = &self.factors {
            columns.push(("log_density_target_given_rest", &conditional.user));
            columns.push(("log_density_given", &marginal.user));
        }
        let names = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let rows = 0..self.whole.user.len();
        let values = rows.flat_map(|row| columns.iter().map(move |(_, values)| values[row])).collect();
        Ok(Table::new(names, values)?)
    }

    /// Rows, and the mean NLLs in both units with their standard errors; where one row dominates a mean, that too.
    pub(crate) fn figures(&self) -> String {
        let mut text = format!("rows                     {}\n", self.whole.user.len());
        let mut pair = |densities: &LogDensities, of: &str| {
            let nll = |values: &[f64]| Estimate::of(&values.iter().map(|value| -value).collect::<Vec<_>>());
            let (user, standardised) = (nll(&densities.user), nll(&densities.standardised));
            let _ = writeln!(
                text,
                "mean NLL, your units     {:.6} ± {:.6} (standard error){of}\n\
                 mean NLL, standardised   {:.6} ± {:.6}{of}",
                user.mean, user.standard_error, standardised.mean, standardised.standard_error,
            );
            let both = [("your units  ", user), ("standardised", standardised)];
            if both.iter().any(|(_, estimate)| estimate.carrier.is_some()) {
                for (units, estimate) in both {
                    let _ = writeln!(text, "median NLL, {units} {:.6}{of}", estimate.median);
                }
            }
            for (units, estimate) in both {
                if let Some(carrier) = estimate.carrier {
                    let name = format!("NLL, {}{of}", units.trim_end());
                    let _ = writeln!(text, "{}", carrier.sentence(&name, &estimate));
                }
            }
        };
        match &self.factors {
            None => pair(&self.whole, ""),
            Some([conditional, marginal]) => {
                pair(&self.whole, ", all columns");
                pair(conditional, ", target given the rest");
                pair(marginal, ", given columns alone");
            }
        }
        text
    }
}
