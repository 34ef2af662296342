use brenier::data::{read, ReadOptions};
use brenier::map::pcp::*;
use brenier::map::ConditionalMap;
use brenier::train::*;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: f64| a.iter().position(|x| x == k).map_or(d, |i| a[i + 1].parse().unwrap());
    let name = &a[1];
    let t = read(format!("/work/shared/data/uci/{name}.csv").as_ref(), &ReadOptions::default(), |n| Ok((0..n.len()).collect())).unwrap().table;
    let splits = std::fs::read_to_string(format!("/work/shared/data/uci/splits/{name}.csv")).unwrap();
    let (mut tr, mut va, mut te) = (vec![], vec![], vec![]);
    for l in splits.lines().skip(1) { let f: Vec<&str> = l.split(',').collect(); let (r, s) = if f[0].parse::<u32>().is_ok() { (f[0], f[1]) } else { (f[1], f[0]) }; let r: u32 = r.parse().unwrap(); match s { "train" => tr.push(r), "valid" => va.push(r), _ => te.push(r) } }
    let d = t.columns(); let n = 1; let m = d - 1;
    let mut mean = vec![0.0; d]; let mut sd = vec![0.0; d];
    for &r in &tr { for j in 0..d { mean[j] += t.value(r as usize, j) / tr.len() as f64; } }
    for &r in &tr { for j in 0..d { sd[j] += (t.value(r as usize, j) - mean[j]).powi(2) / tr.len() as f64; } }
    for s in &mut sd { *s = s.sqrt(); }
    let mut data = Dataset { target: n, given: m, x: vec![], y: vec![] };
    for r in 0..t.rows() { for j in 0..d { let v = ((t.value(r, j) - mean[j]) / sd[j]) as f32; if j < m { data.y.push(v) } else { data.x.push(v) } } }
    let w = get("--w", 128.0) as usize;
    let shape = PcpShape { target: n, given: m, feature_width: w, context_width: get("--u", w as f64) as usize, depth: get("--k", 3.0) as usize, output: OutputActivation::Identity };
    let init = if get("--authors", 0.0) > 0.0 { Initialisation::Authors } else { Initialisation::Balanced };
    for seed in 0..get("--seeds", 3.0) as u64 {
        let start = Instant::now();
        let mut map = PcpMap::<f32>::initial(shape, init, seed).unwrap();
        let s = TrainSettings { batch_size: get("--b", 64.0) as usize, learning_rate: get("--lr", 0.005), adam: AdamSettings { weight_decay: get("--wd", 0.0), ..Default::default() }, patience: get("--p", 20.0) as u32, rewind: get("--rewind", 1.0) > 0.0, max_drops: get("--drops", 4.0) as u32, ..Default::default() };
        let out = train(&mut map, &data, &tr, &va, &s, seed, Control { observer: &mut Silent, stop: &AtomicBool::new(false), checkpoint: None }).unwrap();
        let fine: PcpMap<f64> = map.cast();
        let x: Vec<f64> = te.iter().map(|&r| data.x[r as usize] as f64).collect();
        let y: Vec<f64> = te.iter().flat_map(|&r| data.y[r as usize * m..(r as usize + 1) * m].iter().map(|&v| v as f64)).collect();
        let mut ld = vec![0.0; te.len()];
        fine.log_density(&x, &y, &mut ld).unwrap();
        println!("{name} seed {seed}: test {:.3} valid {:.3} train {:.3} steps {} best {} {:?} {:.1}s", -ld.iter().sum::<f64>() / te.len() as f64, out.best_valid_nll, out.history.last().unwrap().train_nll, out.steps, out.best_step, out.stop, start.elapsed().as_secs_f64());
    }
}
