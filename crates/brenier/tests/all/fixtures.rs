//! Golden values: every fixture in `tests/fixtures`, or in the directory named by `BRENIER_FIXTURES`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;

use brenier::diagnose::{Bandwidth, Sample, mmd};
use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::cpflow::{CpFlowMap, CpFlowShape};
use brenier::map::gaussian::{Covariance, GaussianMap};
use brenier::map::matching::{MatchingMap, MatchingSettings, MatchingShape};
use brenier::map::npe::{FlowKind, NpeMap, NpeShape};
use brenier::map::pcp::{Front, OutputActivation, PcpMap, PcpShape};
use brenier::map::{ConditionalMap, ReferenceKind, Trainable};
use serde_json::Value;

/// All numbers of a nested array, row by row.
fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        Value::Null => Vec::new(),
        number => vec![number.as_f64().unwrap()],
    }
}

fn directory() -> PathBuf {
    std::env::var_os("BRENIER_FIXTURES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"), PathBuf::from)
}

/// Largest difference relative to the largest magnitude expected.
fn assert_close(what: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    let scale = expected.iter().fold(1e-300_f64, |scale, value| scale.max(value.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 1e-10 * scale, "{what}[{i}]: got {got}, expected {expected}");
    }
}

/// Gives a map the fixture's parameters, whose names and sizes must be the map's own.
fn fill(name: &str, map: &mut impl ConditionalMap<f64>, fixture: &Value) {
    let tensors = map.tensors();
    assert_eq!(fixture["params"].as_object().unwrap().len(), tensors.len(), "{name}: tensors");
    for spec in &tensors {
        let values = flat(&fixture["params"][&spec.name]);
        assert_eq!(values.len(), spec.indices().count(), "{name}: {}", spec.name);
        for (index, value) in spec.indices().zip(values) {
            map.parameters_mut()[index] = value;
        }
    }
}

/// Checks the objective of one batch and its gradient in every parameter; a missing gradient means zero.
fn check_training<M: Trainable<f64>>(
    name: &str,
    map: &M,
    (x, y): (&[f64], &[f64]),
    loss: &Value,
    grads: &Value,
) {
    let rows = x.len() / map.target_dim();
    let mut workspace = map.workspace(rows);
    let (batch_x, batch_y) = map.load(&mut workspace, rows);
    batch_x.copy_from_slice(x);
    batch_y.copy_from_slice(y);
    let got = map.adjoints(&mut workspace).unwrap();
    assert_close(&format!("{name}: training loss"), &[got], &[loss.as_f64().unwrap()]);
    check_gradient(name, map, &workspace, grads);
}

/// Checks the gradient that a step has left in its workspace; a missing one means zero.
fn check_gradient<M: Trainable<f64>>(name: &str, map: &M, workspace: &M::Workspace, grads: &Value) {
    let mut gradient = vec![f64::NAN; map.parameters().len()];
    for (index, block) in map.blocks(workspace).iter().enumerate() {
        map.block_gradient(workspace, index, &mut gradient[block.range.clone()]);
    }
    for spec in map.tensors() {
        let got: Vec<f64> = spec.indices().map(|index| gradient[index]).collect();
        let mut expected = flat(&grads[&spec.name]);
        if expected.is_empty() {
            expected = vec![0.0; got.len()];
        }
        assert_close(&format!("{name}: gradient of {}", spec.name), &got, &expected);
    }
}

fn check_pcp(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let shape = PcpShape {
        target: size("n"),
        given: size("m"),
        feature_width: size("feature_width"),
        context_width: size("context_width"),
        depth: size("depth"),
        output: match fixture["output_activation"].as_str().unwrap() {
            "identity" => OutputActivation::Identity,
            "softplus" => OutputActivation::Softplus,
            other => panic!("{name}: unknown output activation {other}"),
        },
        convexity: Default::default(),
        front: match fixture["front"].as_str() {
            None => Front::None,
            Some("affine") => Front::Affine,
            Some(other) => panic!("{name}: unknown front {other}"),
        },
        reference: match fixture["reference"].as_str() {
            None => ReferenceKind::Gaussian,
            Some("heavy-tailed") => ReferenceKind::HeavyTailed,
            Some(other) => panic!("{name}: unknown reference {other}"),
        },
    };
    let mut map = PcpMap::<f64>::initial(shape, Default::default(), 0).unwrap();
    fill(name, &mut map, fixture);
    let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
    let (n, rows) = (shape.target, x.len() / shape.target);
    let (potential, hessian) = map.potential_and_hessian(&x, &y).unwrap();
    assert_close(&format!("{name}: potential"), &potential, &flat(&fixture["potential"]));
    assert_close(&format!("{name}: hessian"), &hessian, &flat(&fixture["hessian"]));
    let (mut z, mut log_det, mut log_density) = (vec![0.0; rows * n], vec![0.0; rows], vec![0.0; rows]);
    map.forward(&x, &y, &mut z, &mut log_det).unwrap();
    assert_close(&format!("{name}: z"), &z, &flat(&fixture["z"]));
    assert_close(&format!("{name}: log_det"), &log_det, &flat(&fixture["log_det"]));
    map.log_density(&x, &y, &mut log_density).unwrap();
    assert_close(&format!("{name}: log_density"), &log_density, &flat(&fixture["log_density"]));

    let mut gradient_x = vec![0.0; rows * n];
    map.log_density_gradient(&x, &y, &mut log_density, &mut gradient_x).unwrap();
    assert_close(&format!("{name}: log_density again"), &log_density, &flat(&fixture["log_density"]));
    // The fixture's gradient is that of the mean negative log-likelihood.
    let mean: Vec<f64> = gradient_x.iter().map(|g| -g / rows as f64).collect();
    assert_close(&format!("{name}: gradient in x"), &mean, &flat(&fixture["grad_mean_nll"]["x"]));

    check_training(name, &map, (&x, &y), &fixture["mean_nll"], &fixture["grad_mean_nll"]);
}

fn check_cot(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let shape = CotShape {
        target: size("n"),
        given: size("m"),
        width: size("width"),
        depth: size("depth"),
        rank: size("rank"),
        embedding: Vec::new(),
    };
    let settings = CotSettings {
        time_steps: size("time_steps"),
        evaluation_steps: size("time_steps"),
        alpha_transport: fixture["alpha_transport"].as_f64().unwrap(),
        alpha_hjb: fixture["alpha_hjb"].as_f64().unwrap(),
        ..CotSettings::default()
    };
    let mut map = CotMap::<f64>::initial(shape.clone(), settings, 0).unwrap();
    fill(name, &mut map, fixture);
    let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
    let (n, rows) = (shape.target, x.len() / shape.target);
    let (potential, gradient, laplacian) = map.potential(0.37, &x, &y).unwrap();
    assert_close(&format!("{name}: potential"), &potential, &flat(&fixture["phi_at_t_0_37"]));
    assert_close(&format!("{name}: gradient in q"), &gradient, &flat(&fixture["grad_phi_at_t_0_37"]));
    assert_close(&format!("{name}: Laplacian"), &laplacian, &flat(&fixture["laplacian_x_at_t_0_37"]));

    let (mut z, mut log_det, mut log_density) = (vec![0.0; rows * n], vec![0.0; rows], vec![0.0; rows]);
    let costs = map.forward_with_costs(&x, &y, settings.time_steps, &mut z, &mut log_det).unwrap();
    assert_close(&format!("{name}: z"), &z, &flat(&fixture["z"]));
    assert_close(&format!("{name}: log_det"), &log_det, &flat(&fixture["log_det"]));
    assert_close(&format!("{name}: transport cost"), &costs.transport, &flat(&fixture["transport_cost"]));
    assert_close(&format!("{name}: HJB cost"), &costs.hjb, &flat(&fixture["hjb_cost"]));
    let nll = flat(&fixture["nll"]);
    map.log_density(&x, &y, &mut log_density).unwrap();
    log_density.iter_mut().for_each(|value| *value = -*value);
    assert_close(&format!("{name}: NLL"), &log_density, &nll);

    let gradients = &fixture["grad_objective"];
    // Both ways through the reverse pass: activations kept, and activations computed again.
    for activation_bytes in [usize::MAX, 0] {
        let map = map.clone().with_settings(CotSettings { activation_bytes, ..settings }).unwrap();
        check_training(name, &map, (&x, &y), &fixture["objective"], gradients);
        let mut workspace = map.workspace(rows);
        let (batch_x, batch_y) = map.load(&mut workspace, rows);
        batch_x.copy_from_slice(&x);
        batch_y.copy_from_slice(&y);
        let mean = nll.iter().sum::<f64>() / rows as f64;
        assert_close(&format!("{name}: mean NLL"), &[map.loss(&mut workspace).unwrap()], &[mean]);
        map.adjoints(&mut workspace).unwrap();
        let mut gradient_x = vec![f64::NAN; rows * n];
        map.target_gradient(&workspace, &mut gradient_x);
        assert_close(&format!("{name}: gradient in x"), &gradient_x, &flat(&gradients["x"]));

        let (t, noise) = (flat(&fixture["t"]), flat(&fixture["noise"]));
        let loss = map.warm_adjoints_at(&mut workspace, &t, &noise).unwrap();
        assert_close(&format!("{name}: loss of a warm step"), &[loss], &flat(&fixture["warm_loss"]));
        check_gradient(name, &map, &workspace, &fixture["grad_warm_loss"]);
        assert!(
            map.warm_adjoints_at(&mut workspace, &[0.5], &noise).is_err(),
            "{name}: a time for every row"
        );
    }
}

fn check_npe(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().map(|value| value as usize);
    let flow = match fixture["flow"].as_str().unwrap() {
        "maf" => FlowKind::Maf,
        "nsf" => FlowKind::Nsf,
        other => panic!("{name}: unknown flow {other}"),
    };
    let sbi = NpeShape::new(flow, size("n").unwrap(), size("m").unwrap());
    let shape = NpeShape {
        transforms: size("transforms").unwrap(),
        hidden_width: size("hidden_width").unwrap(),
        blocks: size("blocks").unwrap(),
        bins: size("bins").unwrap_or(sbi.bins),
        tail_bound: fixture["tail_bound"].as_f64().unwrap_or(sbi.tail_bound),
        embedding: flat(&fixture["embedding"]).iter().map(|&width| width as usize).collect(),
        ..sbi
    };
    let mut map = NpeMap::<f64>::initial(shape, 0).unwrap();
    let permutations: Vec<f64> = map.permutations().flatten().map(|&place| place as f64).collect();
    assert_eq!(permutations, flat(&fixture["permutations"]), "{name}: permutations");
    fill(name, &mut map, fixture);
    check_values(name, &map, fixture);
}

fn check_gaussian(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let covariance: Covariance = serde_json::from_value(fixture["covariance"].clone()).unwrap();
    let mut map = GaussianMap::<f64>::initial(size("n"), size("m"), covariance);
    fill(name, &mut map, fixture);
    check_density(name, &map, fixture);
}

fn check_cpflow(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let shape = CpFlowShape {
        target: size("n"),
        given: size("m"),
        width: size("width"),
        depth: size("depth"),
        blocks: size("blocks"),
    };
    let mut map = CpFlowMap::<f64>::initial(shape, 0).unwrap();
    fill(name, &mut map, fixture);
    check_values(name, &map, fixture);
}

fn check_matching(name: &str, fixture: &Value) {
    let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
    let shape = MatchingShape {
        target: size("n"),
        given: size("m"),
        width: size("width"),
        blocks: size("blocks"),
        embedding: flat(&fixture["embedding"]).iter().map(|&width| width as usize).collect(),
    };
    let settings = MatchingSettings { evaluation_steps: size("evaluation_steps") };
    let mut map = MatchingMap::<f64>::initial(shape, settings, 0).unwrap();
    fill(name, &mut map, fixture);
    let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
    let n = map.target_dim();
    let rows = x.len() / n;
    let field = map.field(0.37, &x, &y).unwrap();
    assert_close(&format!("{name}: field"), &field, &flat(&fixture["field_at_t_0_37"]));
    let (mut z, mut log_det, mut log_density) = (vec![0.0; rows * n], vec![0.0; rows], vec![0.0; rows]);
    map.forward(&x, &y, &mut z, &mut log_det).unwrap();
    assert_close(&format!("{name}: z"), &z, &flat(&fixture["z"]));
    assert_close(&format!("{name}: log_det"), &log_det, &flat(&fixture["log_det"]));
    let mut gradient_x = vec![0.0; rows * n];
    map.log_density_gradient(&x, &y, &mut log_density, &mut gradient_x).unwrap();
    assert_close(&format!("{name}: log_density"), &log_density, &flat(&fixture["log_density"]));
    assert_close(&format!("{name}: gradient in x"), &gradient_x, &flat(&fixture["grad_log_density"]));
    let (own, noise): (Vec<u32>, _) = ((0..rows as u32).collect(), flat(&fixture["noise"]));
    let draw = map.draw(&noise, &y, &own, settings.evaluation_steps).unwrap();
    assert_close(&format!("{name}: draw"), &draw, &flat(&fixture["draw_of_noise"]));

    let mut workspace = map.workspace(rows);
    let (batch_x, batch_y) = map.load(&mut workspace, rows);
    batch_x.copy_from_slice(&x);
    batch_y.copy_from_slice(&y);
    let mean_nll = -log_density.iter().sum::<f64>() / rows as f64;
    assert_close(&format!("{name}: mean NLL"), &[map.loss(&mut workspace).unwrap()], &[mean_nll]);
    let loss = map.adjoints_at(&mut workspace, &flat(&fixture["t"]), &noise).unwrap();
    assert_close(&format!("{name}: training loss"), &[loss], &flat(&fixture["loss"]));
    check_gradient(name, &map, &workspace, &fixture["grad_loss"]);
    assert!(map.adjoints_at(&mut workspace, &[0.5], &noise).is_err(), "{name}: a time for every row");
}

/// Compares points, log-determinants, densities and both gradients.
fn check_values(name: &str, map: &impl Trainable<f64>, fixture: &Value) {
    check_density(name, map, fixture);
    let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
    check_training(name, map, (&x, &y), &fixture["mean_nll"], &fixture["grad_mean_nll"]);
}

/// Compares points, log-determinants, densities and their gradient in x.
fn check_density(name: &str, map: &impl ConditionalMap<f64>, fixture: &Value) {
    let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
    let n = map.target_dim();
    let rows = x.len() / n;
    let (mut z, mut log_det, mut log_density) = (vec![0.0; rows * n], vec![0.0; rows], vec![0.0; rows]);
    map.forward(&x, &y, &mut z, &mut log_det).unwrap();
    assert_close(&format!("{name}: z"), &z, &flat(&fixture["z"]));
    assert_close(&format!("{name}: log_det"), &log_det, &flat(&fixture["log_det"]));
    let mut gradient_x = vec![0.0; rows * n];
    map.log_density_gradient(&x, &y, &mut log_density, &mut gradient_x).unwrap();
    assert_close(&format!("{name}: log_density"), &log_density, &flat(&fixture["log_density"]));
    let mean: Vec<f64> = gradient_x.iter().map(|g| -g / rows as f64).collect();
    assert_close(&format!("{name}: gradient in x"), &mean, &flat(&fixture["grad_mean_nll"]["x"]));
}

/// Runs `check` on every fixture of one kind.
fn for_each_fixture(kind: &str, check: impl Fn(&str, &Value)) {
    let mut checked = 0;
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let fixture: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if fixture["kind"] == kind {
            check(&path.file_name().unwrap().to_string_lossy(), &fixture);
            checked += 1;
        }
    }
    assert!(checked > 0, "no {kind} fixture in {}", directory().display());
}

#[test]
fn every_pcp_fixture_is_reproduced() {
    for_each_fixture("pcp_map", check_pcp);
}

#[test]
fn every_cot_fixture_is_reproduced() {
    for_each_fixture("cot_flow", check_cot);
}

#[test]
fn every_cpflow_fixture_is_reproduced() {
    for_each_fixture("cp_flow", check_cpflow);
}

#[test]
fn every_gaussian_fixture_is_reproduced() {
    for_each_fixture("gaussian", check_gaussian);
}

#[test]
fn every_flow_matching_fixture_is_reproduced() {
    for_each_fixture("flow_matching", check_matching);
}

#[test]
fn every_npe_fixture_is_reproduced() {
    for_each_fixture("npe", check_npe);
}

#[test]
fn the_mmd_fixture_is_reproduced() {
    for_each_fixture("mmd", |name, fixture| {
        let columns = fixture["P"][0].as_array().unwrap().len();
        let (p, q) = (flat(&fixture["P"]), flat(&fixture["Q"]));
        let (p, q) = (Sample::new(&p, columns).unwrap(), Sample::new(&q, columns).unwrap());
        let distance = mmd(&p, &q, Bandwidth::default()).unwrap();
        assert_close(&format!("{name}: MMD²"), &[distance.squared], &flat(&fixture["mmd_squared"]));
        assert_close(&format!("{name}: MMD"), &[distance.root], &flat(&fixture["mmd"]));
    });
}
